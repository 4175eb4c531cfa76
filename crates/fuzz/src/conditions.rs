//! Conditions on the rows of a table.

use leadline_errors::Kind;
use leadline_rows::{RowScan, Wanted};

use crate::folder::Folder;
use crate::{choice, data_dir};

/// For columns of each type there is one that fits.
const VALUES: [&str; 7] =
    ["7", "-1.5e3", "'a'", "true", "'2000-01-01'", "'infinity'", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'"];

/// A value, a major, then a table as for `rows`. Its first column is less than the value, equal to it, more, or null; one of them, for each
/// row of which it is known.
pub fn conditions(data: &[u8]) -> &'static str {
    let (value, rest) = choice(data);
    let (major, table) = choice(rest);
    let files = data_dir::files(13 + major as u32 % 6, table);
    let folder = Folder::with(files.iter().map(|(name, bytes)| (*name, &bytes[..])));
    let open = |conditions: Option<&str>| {
        RowScan::open_some(&folder.0, Some("t"), Some("d"), &Wanted { conditions, ..Wanted::default() })
    };
    // Rows, and those of which it is not known.
    let count = |mut scan: RowScan| {
        let mut count = 0;
        while let Some(rows) = scan.next_rows(1000).expect("the files are there") {
            count += rows.len() as u64;
        }
        (count, scan.unread.undecided)
    };
    let all = open(None).expect("a catalog as it should be");
    let Some(column) = all.columns().first().map(|column| format!("\"{}\"", column.name.replace('"', "\"\""))) else {
        return "no columns";
    };
    let chosen = |condition: String| open(Some(&condition)).map(count);
    let null = chosen(format!("{column} is null")).expect("any column can be null");
    let not_null = chosen(format!("{column} is not null")).expect("any column can be null");
    let (every, _) = count(all);
    assert_eq!((null.0 + not_null.0, null.1, not_null.1), (every, 0, 0));
    let value = VALUES[value % VALUES.len()];
    let compared = |sign: &str| match chosen(format!("{column} {sign} {value}")) {
        Ok(counts) => Some(counts),
        Err(e) => {
            assert!(e.kind == Kind::Usage && !e.message.is_empty() && !e.detail.is_empty(), "{e}");
            None
        }
    };
    let Some((less, unknown)) = compared("<") else { return "not compared" };
    let [equal, more, other] = ["=", ">", "<>"].map(|sign| compared(sign).expect("one of them was compared"));
    assert_eq!([equal.1, more.1, other.1], [unknown; 3]);
    assert_eq!(less + equal.0 + more.0, not_null.0 + 2 * unknown);
    assert_eq!(other.0, less + more.0 - unknown);
    match (every, unknown) {
        (0, _) => "no rows",
        (_, 0) => "compared",
        _ => "undecided",
    }
}
