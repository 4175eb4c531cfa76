//! Values of BRIN summaries.
//!
//! Source: src/backend/access/brin/brin_tuple.c (`brin_deconstruct_tuple`), `brin_*_opcinfo`.

use leadline_page::postgres::brin::BrinTuple;

use super::opclass::{Summary, BLOOM_SUMMARY, BOOL, MINMAX_MULTI_SUMMARY};
use super::{NamedValues, Values, UNKNOWN};
use crate::relation::Column;
use crate::tuple::{value_at, Storage, Stored};
use crate::varlena::Varlena;

impl Values<'_> {
    /// `summaries`: what is kept of each column.
    pub(super) fn brin(&self, summaries: &[Option<Summary>], item: &[u8]) -> Option<NamedValues> {
        let tuple = BrinTuple::parse(item)?;
        let bitmap = if tuple.has_nulls() { item.get(BrinTuple::SIZE..tuple.data_offset())? } else { &[] };
        // Here, other than in rows, a bit that is set says null.
        let bit = |i: usize| bitmap.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1);
        let data = item.get(tuple.data_offset()..)?;
        let mut out = Vec::new();
        let mut at = 0;
        for (i, (column, summary)) in self.columns.iter().zip(summaries).enumerate() {
            let name = &column.name;
            let Some(summary) = *summary else {
                // Where the values of the columns behind it are is not known either.
                out.push((format!("summary of {name}"), Some(UNKNOWN.into())));
                break;
            };
            let (all_null, some_null) = (bit(i), bit(self.columns.len() + i));
            for (what, oid) in kept(summary, column) {
                let mut text = None;
                if !all_null {
                    let Some((stored, end)) = value_at(data, at, self.storage(oid)?) else { return Some(out) };
                    text = self.summary_text(oid, &stored);
                    at = end;
                }
                out.push((format!("{what} {name}"), text));
            }
            let nulls = if all_null {
                "all"
            } else if some_null {
                "some"
            } else {
                "none"
            };
            out.push((format!("nulls in {name}"), Some(nulls.into())));
        }
        Some(out)
    }

    fn storage(&self, oid: u32) -> Option<Storage> {
        Some(self.types.by_oid.get(&oid)?.storage)
    }

    fn summary_text(&self, oid: u32, stored: &Stored<'_>) -> Option<String> {
        let of = match oid {
            BLOOM_SUMMARY => "bloom filter",
            MINMAX_MULTI_SUMMARY => "ranges of minmax_multi",
            _ => return self.text(oid, stored),
        };
        let len = match stored {
            Stored::Varlena(Varlena::Compressed(size, ..)) => *size,
            Stored::Varlena(Varlena::Plain(bytes)) | Stored::Fixed(bytes) => bytes.len(),
            _ => 0,
        };
        Some(format!("<{of}, {len} bytes>"))
    }
}

/// What is kept of a column: each value's name and type.
fn kept(summary: Summary, column: &Column) -> Vec<(&'static str, u32)> {
    match summary {
        Summary::Minmax => vec![("min of", column.oid), ("max of", column.oid)],
        Summary::Inclusion => vec![("union of", column.oid), ("unmergeable in", BOOL), ("empty in", BOOL)],
        Summary::Bloom => vec![("summary of", BLOOM_SUMMARY)],
        Summary::MinmaxMulti => vec![("summary of", MINMAX_MULTI_SUMMARY)],
    }
}
