//! Names of relations as people give them: as SQL has them, quoted or not, else as they are printed here.

use crate::catalog::Class;

/// A name of up to three parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelationName<'t> {
    given: &'t str,
    /// The parts of a name of SQL, the relation's last, as the server folds them; none when it is no such name.
    parts: Vec<String>,
}

impl<'t> RelationName<'t> {
    /// `[database.][schema.]relation`.
    pub fn parse(given: &'t str) -> RelationName<'t> {
        RelationName { given, parts: parts(given).filter(|parts| parts.len() <= 3).unwrap_or_default() }
    }

    /// The schema, when one is named, and the relation.
    pub fn schema_and_name(&self) -> (Option<&str>, &str) {
        match &self.parts[..] {
            [] => self.given.split_once('.').map_or((None, self.given), |(schema, name)| (Some(schema), name)),
            [name] => (None, name),
            [.., schema, name] => (Some(schema), name),
        }
    }

    /// The relations of a database that it names: of SQL, and only where there are none, as names are printed.
    pub fn among<'c>(&self, classes: impl Iterator<Item = &'c Class> + Clone, database: &str) -> Vec<&'c Class> {
        let named: Vec<&Class> = classes.clone().filter(|c| self.is_of_sql(c, database)).collect();
        if named.is_empty() {
            classes.filter(|c| self.is_printed(c, database)).collect()
        } else {
            named
        }
    }

    fn is_of_sql(&self, class: &Class, database: &str) -> bool {
        let full = [database, &class.schema, &class.relname];
        let (wanted, found) = (self.parts.iter().rev(), full.iter().rev());
        !self.parts.is_empty() && wanted.zip(found).all(|(wanted, found)| wanted == found)
    }

    fn is_printed(&self, class: &Class, database: &str) -> bool {
        let after = |name: &'t str, before: &str| name.strip_prefix(before)?.strip_prefix('.');
        let in_schema = |name: &'t str| after(name, &class.schema) == Some(&class.relname);
        self.given == class.relname || in_schema(self.given) || after(self.given, database).is_some_and(in_schema)
    }
}

/// The parts of a name of SQL: ASCII in lower case where it is not in quotes.
fn parts(name: &str) -> Option<Vec<String>> {
    let (mut found, mut rest) = (Vec::new(), name);
    loop {
        let part;
        (part, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_part(quoted)?,
            None => {
                let end = rest.find('.').unwrap_or(rest.len());
                let (part, rest) = rest.split_at(end);
                (part.to_ascii_lowercase(), rest)
            }
        };
        if part.is_empty() {
            return None;
        }
        found.push(part);
        rest = match rest.strip_prefix('.') {
            Some(rest) => rest,
            None => return rest.is_empty().then_some(found),
        };
    }
}

/// What is in quotes, of which two stand for one, and what follows.
pub(crate) fn quoted_part(text: &str) -> Option<(String, &str)> {
    let (mut part, mut rest) = (String::new(), text);
    loop {
        let (before, after) = rest.split_once('"')?;
        part.push_str(before);
        match after.strip_prefix('"') {
            Some(after) => {
                part.push('"');
                rest = after;
            }
            None => return Some((part, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(oid: u32, schema: &str, relname: &str) -> Class {
        Class {
            oid,
            schema: schema.into(),
            relname: relname.into(),
            relkind: b'r',
            relfilenode: oid,
            reltablespace: 0,
            relpersistence: b'p',
            relam: 2,
            relnatts: 1,
            relpages: 1,
        }
    }

    #[test]
    fn a_name_is_one_of_sql_or_as_it_is_printed() {
        let all = [
            class(1, "public", "plain"),
            class(2, "S x", "T\"q"),
            class(3, "public", "Mixed"),
            class(4, "public", "with.dot"),
            class(5, "with", "dot"),
            class(6, "public", "mixed"),
            class(7, "S x", "only"),
            class(8, "public", "Alone"),
        ];
        for (name, oids) in [
            ("plain", &[1][..]),
            ("PLAIN", &[1]),
            ("public.plain", &[1]),
            ("shop.public.plain", &[1]),
            ("other.public.plain", &[]),
            ("\"S x\".\"T\"\"q\"", &[2]),
            ("S x.T\"q", &[2]),
            ("shop.S x.T\"q", &[2]),
            ("Mixed", &[6]),
            ("\"Mixed\"", &[3]),
            ("public.\"Mixed\"", &[3]),
            ("Alone", &[8]),
            ("public.Alone", &[8]),
            ("\"alone\"", &[]),
            ("with.dot", &[5]),
            ("\"with.dot\"", &[4]),
            ("public.with.dot", &[4]),
            ("\"S x\".only", &[7]),
            ("\"S x.only", &[]),
            ("\"\"", &[]),
            ("", &[]),
            (".plain", &[]),
            ("a.shop.public.plain", &[]),
        ] {
            let found: Vec<u32> = RelationName::parse(name).among(all.iter(), "shop").iter().map(|c| c.oid).collect();
            assert_eq!(found, oids, "{name}");
        }
    }
}
