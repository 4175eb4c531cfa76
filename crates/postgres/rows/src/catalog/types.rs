//! The types of a database, with all that it takes to print their values.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{number, Catalog, Values, FIRST_NORMAL_OID, PG_AUTHID, PG_ENUM, PG_PROC, PG_RANGE, PG_TYPE};
use crate::encoding::Encoding;
use crate::tuple::Storage;
use crate::value::{self, Types};
use leadline_errors::Result;

const TYPE: [&str; 9] =
    ["oid", "typname", "typlen", "typalign", "typtype", "typcategory", "typelem", "typbasetype", "typrelid"];
const INTERNAL_LANGUAGE: u32 = 12;
const CHAR: u32 = 18;
const ANYARRAY: u32 = 2277;
const ACLITEM: u32 = 1033;

impl Catalog {
    /// All that has to be known of types to print values of `wanted`.
    ///
    /// # Errors
    /// When a catalog cannot be read.
    pub fn types(&mut self, wanted: &[u32]) -> Result<Types> {
        let rows = self.rows(PG_TYPE, &TYPE)?;
        let ranges = self.ranges()?;
        let mut labels: HashMap<u32, HashMap<u32, String>> = HashMap::new();
        for row in self.rows(PG_ENUM, &["enumtypid", "oid", "enumlabel"])? {
            labels.entry(number(&row[0])).or_default().insert(number(&row[1]), self.name(&row[2]));
        }
        let mut types = Types { encoding: self.encoding.clone(), ..Types::default() };
        let mut relations = HashMap::new();
        for row in &rows {
            let (oid, found) = self.type_of(row, &ranges, &mut labels, &mut relations);
            types.insert(oid, found);
        }
        let mut met = self.composites(&mut types, wanted, &relations)?;
        let missing = |met: &HashSet<u32>, types: &Types| -> Vec<u32> {
            let mut oids: Vec<u32> = met.iter().filter(|oid| !types.by_oid.contains_key(oid)).copied().collect();
            oids.sort_unstable();
            oids
        };
        let lost = missing(&met, &types);
        if lost.iter().any(|oid| (1..FIRST_NORMAL_OID).contains(oid)) {
            // initdb gave all databases the same of these.
            let from = self.siblings().find_map(|mut other| {
                let rows = other.rows(PG_TYPE, &TYPE).ok()?;
                let rows: Vec<Values> = rows.into_iter().filter(|row| lost.contains(&number(&row[0]))).collect();
                (!rows.is_empty()).then_some((other.database, rows))
            });
            for (database, row) in from.iter().flat_map(|(database, rows)| rows.iter().map(move |row| (database, row)))
            {
                let (oid, found) = self.type_of(row, &ranges, &mut labels, &mut relations);
                let name = &found.name;
                self.damage.say(format!(
                    "pg_type has no row for type {name}; it is taken from the database with OID {database}"
                ));
                types.insert(oid, found);
            }
            met = self.composites(&mut types, wanted, &relations)?;
        }
        for oid in missing(&met, &types) {
            self.damage.say(match oid {
                0 => "pg_range has no row for a range type; its values are printed as bytes in hex".into(),
                oid => format!("pg_type has no row for type {oid}; its values are printed as bytes in hex"),
            });
        }
        types.encoding = self.encoding_for(&met);
        if met.contains(&ANYARRAY) || !wanted.iter().all(|oid| types.is_known(*oid)) {
            self.roles(&mut types);
            self.printed_alike(&mut types);
        }
        Ok(types)
    }

    /// Of the texts of values in which these types are met.
    pub(crate) fn encoding_for(&self, met: &HashSet<u32>) -> Option<Arc<Encoding>> {
        match &self.encoding {
            None if met.contains(&CHAR) => Encoding::of_bytes(self.dir.major).map(Arc::new),
            encoding => encoding.clone(),
        }
    }

    /// A row of `pg_type`. `labels` of enums go into it; `relations`: where the fields of composite types are.
    fn type_of(
        &self,
        row: &Values,
        ranges: &HashMap<u32, u32>,
        labels: &mut HashMap<u32, HashMap<u32, String>>,
        relations: &mut HashMap<u32, u32>,
    ) -> (u32, value::Type) {
        let oid = number(&row[0]);
        let storage = Storage { attlen: number(&row[2]) as i16, attalign: number(&row[3]) as u8 };
        let element = number(&row[6]);
        let kind = match (number(&row[4]) as u8, number(&row[5]) as u8) {
            (b'd', _) => value::Kind::Domain(number(&row[7])),
            (b'e', _) => value::Kind::Enum(labels.remove(&oid).unwrap_or_default()),
            (b'r', _) => value::Kind::Range(ranges.get(&oid).copied().unwrap_or(0)),
            (b'm', _) => value::Kind::Multirange(ranges.get(&oid).copied().unwrap_or(0)),
            (b'c', _) => {
                relations.insert(oid, number(&row[8]));
                value::Kind::Composite(Vec::new())
            }
            (_, b'A') if storage.attlen == -1 && element != 0 && !matches!(oid, 22 | 30) => value::Kind::Array(element),
            _ if oid == ANYARRAY => value::Kind::AnyArray,
            _ => value::Kind::Scalar,
        };
        (oid, value::Type { name: self.name(&row[1]), storage, kind })
    }

    /// Privileges name roles. When the roles cannot be read, the type of privileges stays one that is not known, which is told.
    fn roles(&mut self, types: &mut Types) {
        if let (Some(privilege), Ok(roles)) = (types.get_mut(ACLITEM), self.rows(PG_AUTHID, &["oid", "rolname"])) {
            privilege.kind = value::Kind::Acl(roles.iter().map(|row| (number(&row[0]), self.name(&row[1]))).collect());
        }
    }

    /// A type whose output function is that of a built-in type, under whatever name (citext), is read as that one. When the
    /// functions cannot be read, it stays one that is not known, which is told.
    fn printed_alike(&mut self, types: &mut Types) {
        let (Ok(outputs), Ok(functions)) =
            (self.rows(PG_TYPE, &["oid", "typoutput"]), self.rows(PG_PROC, &["oid", "prolang", "prosrc"]))
        else {
            return;
        };
        let sources: HashMap<u32, Vec<u8>> = functions
            .into_iter()
            .filter(|row| number(&row[1]) == INTERNAL_LANGUAGE)
            .filter_map(|mut row| Some((number(&row[0]), row[2].take()?)))
            .collect();
        let source = |row: &Values| Some((number(&row[0]), sources.get(&number(&row[1]))?));
        let is_built_in = |types: &Types, oid| oid < FIRST_NORMAL_OID && types.is_known(oid);
        let built_in: HashMap<&Vec<u8>, u32> = outputs
            .iter()
            .filter_map(source)
            .filter(|(oid, _)| is_built_in(types, *oid))
            .map(|(o, s)| (s, o))
            .collect();
        for (oid, source) in outputs.iter().filter_map(source) {
            let Some(like) = built_in.get(source).and_then(|oid| types.by_oid.get(oid)) else { continue };
            let (like_oid, storage) = (built_in[source], like.storage);
            match types.get_mut(oid) {
                Some(t) if oid >= FIRST_NORMAL_OID && t.kind == value::Kind::Scalar && t.storage == storage => {
                    t.kind = value::Kind::Domain(like_oid);
                    Arc::make_mut(&mut types.alike).insert(oid);
                }
                _ => {}
            }
        }
    }

    /// What ranges and multiranges are of.
    fn ranges(&mut self) -> Result<HashMap<u32, u32>> {
        let with_multi = self.dir.major >= 14;
        let columns = ["rngtypid", "rngsubtype", "rngmultitypid"];
        let rows = self.rows(PG_RANGE, if with_multi { &columns } else { &columns[..2] })?;
        Ok(rows
            .iter()
            .flat_map(|r| r.iter().step_by(2).map(|oid| (number(oid), number(&r[1]))).collect::<Vec<_>>())
            .collect())
    }

    /// Fills in the fields of those composite types that can be met in values of `wanted`; the types that can be.
    fn composites(&mut self, types: &mut Types, wanted: &[u32], relations: &HashMap<u32, u32>) -> Result<HashSet<u32>> {
        let mut seen = HashSet::new();
        let mut next = wanted.to_vec();
        while !next.is_empty() {
            let mut found = HashSet::new();
            while let Some(oid) = next.pop() {
                if !seen.insert(oid) {
                    continue;
                }
                match types.by_oid.get(&oid).map(|t| &t.kind) {
                    Some(value::Kind::Array(of) | value::Kind::Domain(of)) => next.push(*of),
                    Some(value::Kind::Range(of) | value::Kind::Multirange(of)) => next.push(*of),
                    Some(value::Kind::Composite(_)) => {
                        found.insert(oid);
                    }
                    // Its elements may be of every type there is.
                    Some(value::Kind::AnyArray) => next.extend(types.by_oid.keys().copied()),
                    _ => {}
                }
            }
            let relids = found.iter().filter_map(|oid| relations.get(oid).copied()).collect();
            let attributes = if found.is_empty() { HashMap::new() } else { self.attributes(&relids)? };
            for oid in found {
                let of = relations.get(&oid).and_then(|relid| attributes.get(relid)).map_or(&[][..], Vec::as_slice);
                let fields: Vec<_> =
                    of.iter().map(|a| (if a.attisdropped { 0 } else { a.atttypid }, a.storage)).collect();
                next.extend(fields.iter().map(|f| f.0).filter(|oid| *oid != 0));
                if let Some(composite) = types.get_mut(oid) {
                    composite.kind = value::Kind::Composite(fields);
                }
            }
        }
        Ok(seen)
    }
}
