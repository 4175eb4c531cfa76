//! The values of the items of one page, as text: rows of a table, dead ones too, and what an index keeps of its columns.

mod brin;
mod opclass;
mod spgist;

use std::path::Path;
use std::sync::Arc;

use leadline_page::postgres::btree::pivot_natts;
use leadline_page::postgres::index_tuple::{IndexTuple, INDEX_NULL_MASK, SIZE};
use leadline_page::postgres::spgist::SPGIST_NULLS;
use leadline_page::postgres::{kind, Fork, Header, Items, Kind};

use crate::decode::Decoder;
use crate::encoding::Encoding;
use crate::find::relation_of_file;
use crate::heap_file::tuples;
use crate::relation::{Column, Relation};
use crate::scan::Texts;
use crate::tuple::{deform, Storage, Stored};
use crate::value::Types;
use crate::varlena::{self, Varlena};
use leadline_errors::Result;

use opclass::{Summary, Tree, ANYRANGE};

/// Values with their names.
type NamedValues = Vec<(String, Option<String>)>;

/// A line pointer, and the values its item has, each with its name: that of its column, or what is kept of that, such as "min of n".
/// An inner tuple of an index may lack the last ones.
pub type ItemValues = (u16, NamedValues);

/// Instead of a value that only an operator class can read which does not come with the server.
const UNKNOWN: &str = "<unknown operator class>";

/// What a btree keeps of a `name`, and that type, which is printed the same.
const CSTRING: u32 = 2275;
const NAME: u32 = 19;

/// The column number that entries of a GIN index of several columns begin with.
const GIN_COLUMN: Storage = Storage { attlen: 2, attalign: b's' };

/// What a null in a GIN index stands for, by the byte that it has in place of a key (ginblock.h, `GIN_CAT_NULL_KEY` and on).
const GIN_NULLS: [&str; 3] = ["an element", "a value without elements", "the whole value"];

/// What has to be known of operator classes to read the items of an index.
enum Kept {
    /// Nothing: its tuples have its columns, or it is no index.
    Columns,
    Spgist(Option<Tree>),
    Brin(Vec<Option<Summary>>),
}

/// The pages of one relation, through the catalog of the data directory that its file is in.
pub struct PageValues {
    relation: Arc<Relation>,
    kept: Kept,
    rows: Decoder,
    texts: Texts,
}

impl PageValues {
    /// `path` is a file of a relation.
    ///
    /// # Errors
    /// When it is in no data directory of a known major, or is the file of no relation there now.
    pub fn open(path: &Path) -> Result<PageValues> {
        let (mut catalog, oid) = relation_of_file(path)?;
        let kept = match catalog.classes[&oid].relam {
            opclass::SPGIST => {
                let functions = opclass::first_functions(&mut catalog, oid)?;
                Kept::Spgist(functions.first().copied().and_then(opclass::tree))
            }
            opclass::BRIN => {
                let functions = opclass::first_functions(&mut catalog, oid)?;
                Kept::Brin(functions.into_iter().map(opclass::summary).collect())
            }
            _ => Kept::Columns,
        };
        let relation = Arc::new(Relation::of(catalog, oid)?);
        let (rows, texts) = (Decoder::new(&relation, true), Texts::new(&relation));
        Ok(PageValues { rows, texts, kept, relation })
    }

    /// schema.name
    pub fn relation(&self) -> &str {
        &self.relation.name
    }

    /// The encoding of its texts where that is not UTF-8.
    pub fn other_encoding(&self) -> Option<&Encoding> {
        self.relation.types.encoding.as_deref()
    }

    /// Columns of a table; of an index the columns of its tuples, as their operator classes store them.
    pub fn columns(&self) -> &[Column] {
        &self.relation.columns
    }

    /// The values of the items of a page of the relation; none for pages whose items are no rows and no keys. An item whose bytes
    /// do not fit the columns is left out, or has the values that do.
    ///
    /// # Errors
    /// When values that are stored outside of the page cannot be read.
    pub fn of(&mut self, page: &[u8], block: u32) -> Result<Vec<ItemValues>> {
        let Some(header) = Header::parse(page) else { return Ok(Vec::new()) };
        let kind = kind(page, &header, Fork::Main);
        if kind.items() == Items::Heap {
            let read = self.rows.page(page, block, &mut self.texts);
            let rows = std::mem::take(&mut self.texts.rows);
            read?;
            let names = || self.relation.columns.iter().map(|column| column.name.clone());
            return Ok(rows.into_iter().map(|row| (row.place.lp, names().zip(row.values).collect())).collect());
        }
        let of_nulls = matches!(header.special(page), [flags, ..] if u16::from(*flags) & SPGIST_NULLS != 0);
        let values = Values::of(&self.relation);
        let items = tuples(page).into_iter().flatten();
        let found = items.filter_map(|(lp, item)| {
            let found = match (kind, &self.kept) {
                (Kind::SpgistLeaf, Kept::Spgist(tree)) => values.spgist_leaf(*tree, of_nulls, item),
                (Kind::SpgistInner, Kept::Spgist(Some(tree))) => values.spgist_inner(*tree, item),
                (Kind::BrinRegular, Kept::Brin(summaries)) => values.brin(summaries, item),
                _ if kind.items() == Items::Index => values.key(kind, item),
                _ => None,
            };
            Some((lp, found?))
        });
        Ok(found.collect())
    }
}

/// What the items of an index are read with; it does no I/O.
struct Values<'a> {
    columns: &'a [Column],
    storages: &'a [Storage],
    types: &'a Types,
}

impl<'a> Values<'a> {
    fn of(relation: &'a Relation) -> Values<'a> {
        Values { columns: &relation.columns, storages: &relation.storages, types: &relation.types }
    }

    /// The values of an index tuple.
    fn key(&self, kind: Kind, item: &[u8]) -> Option<NamedValues> {
        let tuple = IndexTuple::parse(item)?;
        let bitmap = if tuple.t_info & INDEX_NULL_MASK != 0 { Some(item.get(SIZE..2 * SIZE)?) } else { None };
        let data = item.get(tuple.data_offset()..)?;
        let columns = self.storages;
        let (mut stored, gin_column);
        let mut gin_null = None;
        match kind {
            Kind::GinEntryLeaf | Kind::GinEntryInner | Kind::GinPending => {
                stored = Vec::new();
                // An entry has one key, of the column whose number stands before it where there are several.
                if let [only] = *columns {
                    deform(data, bitmap, 1, &[only], &mut stored);
                    gin_column = Some(0);
                    gin_null = data.first();
                } else {
                    let number = usize::from(u16::from_le_bytes(*data.first_chunk()?)).checked_sub(1)?;
                    deform(data, bitmap, 2, &[GIN_COLUMN, *columns.get(number)?], &mut stored);
                    stored.drain(..1.min(stored.len()));
                    gin_column = Some(number);
                    gin_null = data.get(2);
                }
                gin_null = gin_null.filter(|_| stored == [Stored::Null]);
            }
            _ => {
                let is_btree = matches!(kind, Kind::BtreeLeaf | Kind::BtreeInner | Kind::BtreeDeletedOld);
                let natts = if is_btree { pivot_natts(&tuple) } else { None };
                stored = Vec::with_capacity(columns.len());
                deform(data, bitmap, natts.map_or(columns.len(), usize::from), columns, &mut stored);
                gin_column = None;
            }
        }
        let there = stored.iter().enumerate().filter(|(_, stored)| **stored != Stored::Missing);
        // All that a hash index keeps of a value is its hash.
        let of = if matches!(kind, Kind::HashBucket | Kind::HashOverflow) { "hash of " } else { "" };
        let values = there.filter_map(|(i, stored)| {
            let column = self.columns.get(gin_column.unwrap_or(i))?;
            Some((format!("{of}{}", column.name), self.text(column.oid, stored)))
        });
        let is_null_of = gin_null.and_then(|category| GIN_NULLS.get(usize::from(*category).wrapping_sub(1)));
        Some(values.chain(is_null_of.map(|what| ("null is".to_owned(), Some((*what).to_owned())))).collect())
    }

    fn text(&self, oid: u32, stored: &Stored<'_>) -> Option<String> {
        match *stored {
            Stored::Fixed(bytes) | Stored::Varlena(Varlena::Plain(bytes)) => Some(self.print(oid, bytes)),
            Stored::Varlena(Varlena::Compressed(size, method, packed)) => {
                let bytes = varlena::unpack(size, method, packed);
                Some(bytes.map_or_else(|| "<cannot be decompressed>".into(), |bytes| self.print(oid, &bytes)))
            }
            Stored::Varlena(Varlena::External(_)) => Some("<stored outside: no index can>".into()),
            Stored::Null | Stored::Missing => None,
        }
    }

    fn print(&self, oid: u32, bytes: &[u8]) -> String {
        let of = match oid {
            ANYRANGE => bytes.first_chunk().map_or(oid, |own| u32::from_le_bytes(*own)),
            CSTRING => NAME,
            _ => oid,
        };
        self.types.text(self.types.printer(of), bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{self, Type};

    /// int4, text, and all that operator classes keep beside the columns.
    fn types() -> Types {
        let one = |(oid, attlen, attalign)| {
            let storage = Storage { attlen, attalign };
            (oid, Type { name: String::new(), storage, kind: value::Kind::Scalar })
        };
        let fixed = [
            (19, 64, b'c'),
            (2275, -2, b'c'),
            (16, 1, b'c'),
            (21, 2, b's'),
            (23, 4, b'i'),
            (600, 16, b'd'),
            (603, 32, b'd'),
            (701, 8, b'd'),
        ];
        let varying =
            [25, 650, ANYRANGE, opclass::BLOOM_SUMMARY, opclass::MINMAX_MULTI_SUMMARY].map(|oid| (oid, -1, b'i'));
        Types { by_oid: Arc::new(fixed.into_iter().chain(varying).map(one).collect()), ..Types::default() }
    }

    fn columns(oids: &[u32], types: &Types) -> (Vec<Column>, Vec<Storage>) {
        let column = |oid: &u32| Column {
            name: format!("c{oid}"),
            type_name: String::new(),
            oid: *oid,
            base: *oid,
            atttypmod: -1,
            is_known: true,
        };
        (oids.iter().map(column).collect(), oids.iter().map(|oid| types.by_oid[oid].storage).collect())
    }

    fn shown(found: Option<NamedValues>) -> String {
        let text =
            |(name, value): (String, Option<String>)| format!("{name}={}", value.unwrap_or_else(|| "NULL".into()));
        found.map_or_else(|| "nothing".into(), |all| all.into_iter().map(text).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn what_is_cut_off_is_left_out() {
        let types = types();
        let (columns, storages) = columns(&[23, 25], &types);
        let values = Values { columns: &columns, storages: &storages, types: &types };
        let both = [Some(Summary::Minmax), Some(Summary::Minmax)];
        // From 7 to 9; the text is null in some rows, from "a" to "b".
        let summary = [1, 0, 0, 0, 0x88, 0b1000, 0, 0, 7, 0, 0, 0, 9, 0, 0, 0, 5, b'a', 5, b'b'];
        let whole = "min of c23=7 max of c23=9 nulls in c23=none min of c25=a max of c25=b nulls in c25=some";
        assert_eq!(shown(values.brin(&both, &summary)), whole);
        assert_eq!(shown(values.brin(&both, &summary[..18])), whole[..whole.find(" max of c25").unwrap()]);
        assert_eq!(shown(values.brin(&both, &summary[..5])), "nothing");
        // Two nodes below "x": label 97, and none.
        let tree = opclass::tree(4027);
        let nodes = [[0; 6].as_slice(), &[16, 0], &97u64.to_le_bytes(), &[0; 6], &[8, 0x80]].concat();
        let inner = [[2 << 3, 0, 8, 0, 40, 0, 0, 0].as_slice(), &[5, b'x', 0, 0, 0, 0, 0, 0], &nodes].concat();
        assert_eq!(shown(values.spgist_inner(tree.unwrap(), &inner)), "prefix=x labels={97,NULL}");
        assert_eq!(shown(values.spgist_inner(tree.unwrap(), &inner[..24])), "nothing");
        let leaf = [[0; 16].as_slice(), &[1, 0, 0, 0], &[5, b'y']].concat();
        assert_eq!(shown(values.spgist_leaf(tree, false, &leaf)), "end of c23=1 c25=y");
        assert_eq!(shown(values.spgist_leaf(tree, false, &leaf[..14])), "nothing");
        assert_eq!(shown(values.spgist_leaf(tree, false, &[&[1], &leaf[1..]].concat())), "nothing");
    }

    #[test]
    fn names_are_text_and_nulls_of_gin_say_of_what() {
        let types = types();
        let (columns, storages) = columns(&[2275], &types);
        let values = Values { columns: &columns, storages: &storages, types: &types };
        let item = [&[0, 0, 0, 0, 1, 0, 16, 0][..], b"pg_proc\0"].concat();
        assert_eq!(shown(values.key(Kind::BtreeLeaf, &item)), "c2275=pg_proc");
        let null = |category: u8| [0, 0, 0, 0, 1, 0, 24, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, category];
        assert_eq!(shown(values.key(Kind::GinEntryLeaf, &null(1))), "c2275=NULL null is=an element");
        assert_eq!(shown(values.key(Kind::GinPending, &null(3))), "c2275=NULL null is=the whole value");
        assert_eq!(shown(values.key(Kind::GinEntryLeaf, &null(0))), "c2275=NULL");
    }

    #[test]
    fn any_bytes_are_an_item_or_none() {
        let types = types();
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        let trees = [4018, 4023, 4027, 3469, 3795, 5010, 0].map(opclass::tree);
        let summaries = [3383, 4105, 4591, 4616, 0].map(opclass::summary);
        let mut found = 0;
        for oids in [vec![25], vec![600, 23, 25], vec![603, ANYRANGE], Vec::new()] {
            let (columns, storages) = columns(&oids, &types);
            let values = Values { columns: &columns, storages: &storages, types: &types };
            for _ in 0..20_000 {
                // Small numbers are likelier to be what can be.
                let mut item: Vec<u8> = (0..random() % 80).map(|_| random() & random() & random()).collect();
                if let Some(first) = item.first_mut() {
                    *first &= !3;
                }
                let pick = usize::from(random());
                let tree = trees[pick % trees.len()];
                let kept: Vec<_> = (0..oids.len()).map(|i| summaries[(pick + i) % summaries.len()]).collect();
                let all = [
                    values.spgist_leaf(tree, pick % 2 == 0, &item),
                    tree.and_then(|tree| values.spgist_inner(tree, &item)),
                    values.brin(&kept, &item),
                    values.key(if pick % 2 == 0 { Kind::GinEntryLeaf } else { Kind::BtreeInner }, &item),
                ];
                found += all.iter().flatten().count();
            }
        }
        assert!(found > 10_000, "{found} of any bytes were items");
    }
}
