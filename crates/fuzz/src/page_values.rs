//! The values of the items of any page, typed by a small catalog.

use leadline_rows::value::LONGEST;
use leadline_rows::PageValues;

use crate::choice;
use crate::data_dir::{self, FIRST_FUNCTIONS};
use crate::folder::Folder;

/// Access methods of relations whose items are shown: a table's is 2.
pub(crate) const ACCESS_METHODS: [(u32, &str); 7] =
    [(2, "table"), (403, "btree"), (405, "hash"), (783, "gist"), (2742, "gin"), (4000, "spgist"), (3580, "brin")];

/// A data directory, some bytes of which are others, with a table or an index of it, and a page that is said to be of that. The input
/// says which columns, which access method, which operator classes, and what the page is.
pub fn page_values(data: &[u8]) -> &'static str {
    let (major, rest) = choice(data);
    let (am, rest) = choice(rest);
    let (class, rest) = choice(rest);
    let (edits, rest) = choice(rest);
    let (edits, table) = rest.split_at(rest.len().min(4 * (edits % 16)));
    let (am, reached) = ACCESS_METHODS[am % ACCESS_METHODS.len()];
    let classes = [0, 1, 2].map(|i| FIRST_FUNCTIONS[(class + i * (class / 16)) % FIRST_FUNCTIONS.len()]);
    let (mut files, index, page) = data_dir::files_with_index(13 + major as u32 % 6, table, am, classes);
    data_dir::damage(&mut files, edits);
    let folder = Folder::with(files.iter().map(|(name, bytes)| (*name, &bytes[..])));
    let file = folder.0.join(if am == 2 { data_dir::TABLE_FILE } else { index });
    let mut values = match PageValues::open(&file) {
        Ok(values) => values,
        Err(e) => {
            assert!(!e.message.is_empty() && !e.kind.as_str().is_empty(), "{e}");
            return e.kind.as_str();
        }
    };
    let found = match values.of(page, 7) {
        Ok(found) => found,
        Err(e) => {
            assert!(!e.message.is_empty() && !e.place.is_empty(), "{e}");
            let empty = data_dir::heap([], 0);
            assert_eq!(values.of(&empty, 8).expect("no rows to read"), [], "rows of the page before");
            return "unreadable";
        }
    };
    // A line pointer takes four bytes; a prefix and labels, or three values of a column with what it says of nulls.
    assert!(found.len() <= page.len() / 4, "{} items of {} bytes", found.len(), page.len());
    assert!(found.windows(2).all(|pair| pair[0].0 < pair[1].0), "line pointers out of order");
    let most = (4 * values.columns().len()).max(2);
    for (lp, item) in &found {
        assert!(*lp > 0 && item.len() <= most, "{} values at line pointer {lp}", item.len());
        for (name, value) in item {
            assert!(!name.is_empty() || values.columns().iter().any(|column| column.name.is_empty()), "no name");
            // Labels are values of two bytes, of up to 8191 nodes.
            let longest = if name == "labels" { 8 * page.len() } else { LONGEST + 64 };
            assert!(
                value.as_ref().is_none_or(|value| value.len() <= longest),
                "{} bytes of {name}",
                value.as_ref().map_or(0, String::len)
            );
        }
    }
    if found.is_empty() {
        "no items"
    } else {
        reached
    }
}
