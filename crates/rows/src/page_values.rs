//! The values of the items of one page, as text: rows of a table, dead ones too, and keys of an index.

use std::path::Path;
use std::sync::Arc;

use leadline_page::postgres::btree::pivot_natts;
use leadline_page::postgres::index_tuple::{IndexTuple, INDEX_NULL_MASK, SIZE};
use leadline_page::postgres::{kind, Fork, Header, Items, Kind};

use crate::decode::Decoder;
use crate::error::Result;
use crate::find::relation_of_file;
use crate::heap_file::tuples;
use crate::relation::{Column, Relation};
use crate::scan::Texts;
use crate::tuple::{deform, Storage, Stored};
use crate::varlena::{self, Varlena};

/// A line pointer, and the values of the columns its item has: an inner tuple of an index may lack the last ones.
pub type ItemValues = (u16, Vec<(usize, Option<String>)>);

/// The column number that entries of a GIN index of several columns begin with.
const GIN_COLUMN: Storage = Storage { attlen: 2, attalign: b's' };

/// The pages of one relation, through the catalog of the data directory that its file is in.
pub struct PageValues {
    relation: Arc<Relation>,
    rows: Decoder,
    texts: Texts,
}

impl PageValues {
    /// `path` is a file of a relation.
    ///
    /// # Errors
    /// When it is in no data directory of a known major, or is the file of no relation there now.
    pub fn open(path: &Path) -> Result<PageValues> {
        let (catalog, oid) = relation_of_file(path)?;
        let relation = Arc::new(Relation::of(catalog, oid)?);
        Ok(PageValues { rows: Decoder::new(&relation, true), texts: Texts::new(&relation), relation })
    }

    /// schema.name
    pub fn relation(&self) -> &str {
        &self.relation.name
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
        match kind.items() {
            Items::Heap => {
                self.rows.page(page, block, &mut self.texts)?;
                let rows = std::mem::take(&mut self.texts.rows);
                Ok(rows.into_iter().map(|row| (row.place.lp, row.values.into_iter().enumerate().collect())).collect())
            }
            Items::Index => {
                let items = tuples(page).into_iter().flatten();
                Ok(items.filter_map(|(lp, item)| Some((lp, self.key(kind, item)?))).collect())
            }
            _ => Ok(Vec::new()),
        }
    }

    /// The values of an index tuple.
    fn key(&self, kind: Kind, item: &[u8]) -> Option<Vec<(usize, Option<String>)>> {
        let tuple = IndexTuple::parse(item)?;
        let bitmap = if tuple.t_info & INDEX_NULL_MASK != 0 { Some(item.get(SIZE..2 * SIZE)?) } else { None };
        let data = item.get(tuple.data_offset()..)?;
        let columns = &self.relation.storages;
        let (mut stored, gin_column);
        match kind {
            Kind::GinEntryLeaf | Kind::GinEntryInner | Kind::GinPending => {
                stored = Vec::new();
                // An entry has one key, of the column whose number stands before it where there are several.
                if let [only] = columns[..] {
                    deform(data, bitmap, 1, &[only], &mut stored);
                    gin_column = Some(0);
                } else {
                    let number = usize::from(u16::from_le_bytes(*data.first_chunk()?)).checked_sub(1)?;
                    deform(data, bitmap, 2, &[GIN_COLUMN, *columns.get(number)?], &mut stored);
                    stored.drain(..1.min(stored.len()));
                    gin_column = Some(number);
                }
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
        Some(
            there
                .map(|(i, stored)| {
                    let column = gin_column.unwrap_or(i);
                    (column, self.text(column, stored))
                })
                .collect(),
        )
    }

    fn text(&self, column: usize, stored: &Stored<'_>) -> Option<String> {
        match *stored {
            Stored::Fixed(bytes) | Stored::Varlena(Varlena::Plain(bytes)) => Some(self.texts.text(column, bytes)),
            Stored::Varlena(Varlena::Compressed(size, method, packed)) => {
                let bytes = varlena::unpack(size, method, packed);
                Some(bytes.map_or_else(|| "<cannot be unpacked>".into(), |bytes| self.texts.text(column, &bytes)))
            }
            Stored::Varlena(Varlena::External(_)) => Some("<stored outside: no index can>".into()),
            Stored::Null | Stored::Missing => None,
        }
    }
}
