//! Values of SP-GiST tuples: the columns of leaves, prefix and node labels of inner tuples.
//!
//! Source: src/include/access/spgist_private.h, src/backend/access/spgist/spgutils.c (`spgDeformLeafTuple`).

use leadline_page::postgres::index_tuple::{IndexTuple, INDEX_NULL_MASK, SIZE};
use leadline_page::postgres::spgist::SpgistTuple;

use super::opclass::Tree;
use super::{NamedValues, Values, UNKNOWN};
use crate::tuple::{deform, value_at, Stored};
use crate::value::{self, Text};
use crate::varlena::Varlena;

/// Where a leaf has its null bitmap, when it has one.
const BITMAP: usize = 12;

impl Values<'_> {
    /// `nulls`: on a page of the tree of those rows whose key is null, which keeps no key.
    pub(super) fn spgist_leaf(&self, tree: Option<Tree>, nulls: bool, item: &[u8]) -> Option<NamedValues> {
        let tuple = SpgistTuple::parse(item, true).filter(SpgistTuple::is_live)?;
        let names = self.columns.iter().map(|column| column.name.as_str());
        let mut names = names.map(str::to_owned).collect::<Vec<_>>();
        let key = names.first_mut()?;
        let Some(tree) = tree else { return Some(vec![(key.clone(), Some(UNKNOWN.into()))]) };
        if tree.ends {
            key.insert_str(0, "end of ");
        }
        if nulls && self.columns.len() == 1 {
            return Some(vec![(key.clone(), None)]);
        }
        let start = SpgistTuple::head(true);
        let bitmap = if tuple.item.t_info & INDEX_NULL_MASK != 0 { Some(item.get(BITMAP..start)?) } else { None };
        let mut stored = Vec::new();
        deform(item.get(start..)?, bitmap, self.storages.len(), self.storages, &mut stored);
        let texts = stored.iter().zip(self.columns).enumerate().map(|(i, (stored, column))| match i {
            0 if tree.ends => self.piece(column.oid, stored),
            _ => self.text(column.oid, stored),
        });
        Some(names.into_iter().zip(texts).collect())
    }

    /// Of a text, which the tree cuts between any two bytes. Where it is in the middle of a character cannot be seen in some encodings: what
    /// would be read there are other characters.
    fn piece(&self, oid: u32, stored: &Stored<'_>) -> Option<String> {
        match (stored, &self.types.encoding) {
            (Stored::Varlena(Varlena::Plain(bytes)), Some(encoding))
                if encoding.needs_its_start() && !bytes.is_ascii() =>
            {
                let mut hex = Text::new();
                value::hex(bytes, &mut hex);
                Some(format!("<of a text in {}: {}>", encoding.name(), hex.into_string()))
            }
            _ => self.text(oid, stored),
        }
    }

    pub(super) fn spgist_inner(&self, tree: Tree, item: &[u8]) -> Option<NamedValues> {
        let tuple = SpgistTuple::parse(item, false).filter(SpgistTuple::is_live)?;
        let mut at = SpgistTuple::head(false);
        let mut out = Vec::new();
        if tuple.prefix() > 0 {
            let (prefix, _) =
                value_at(item.get(at..at + tuple.prefix())?, 0, self.types.by_oid.get(&tree.prefix)?.storage)?;
            out.push(("prefix".into(), self.piece(tree.prefix, &prefix)));
            at += tuple.prefix();
        }
        if let Some(label) = tree.label {
            let mut labels = Vec::new();
            for _ in 0..tuple.nodes() {
                let node = IndexTuple::parse(item.get(at..)?)?;
                let bytes = item.get(at + SIZE..at + node.size())?;
                labels.push(if node.t_info & INDEX_NULL_MASK == 0 {
                    self.text(label, &Stored::Fixed(bytes))
                } else {
                    None
                });
                at += node.size();
            }
            let labels: Vec<String> = labels.into_iter().map(|label| label.unwrap_or_else(|| "NULL".into())).collect();
            out.push(("labels".into(), Some(format!("{{{}}}", labels.join(",")))));
        }
        Some(out)
    }
}
