//! What is in an old form: in all of a data directory, and page by page in its table.

use leadline_pending::{relations, scan, Look, OldPages, Reason, Relation, Tally, Wanted, What};

use crate::choice;
use crate::data_dir::{self, BLOCK};
use crate::folder::Folder;

/// A line pointer takes four bytes of a page.
const MOST_ROWS: usize = BLOCK / 4;

/// A data directory, some bytes of which are others, as in [`crate::rows`]; here it has indexes too. A part of the inputs is counted by
/// `scan` as well, which sleeps where a page cannot be: a server may be writing it.
pub fn pending(data: &[u8]) -> &'static str {
    let (how, rest) = choice(data);
    let (edits, rest) = choice(rest);
    let (edits, table) = rest.split_at(rest.len().min(4 * (edits % 16)));
    let mut files = data_dir::files_with_indexes(13 + how as u32 % 6, table);
    data_dir::damage(&mut files, edits);
    let folder = Folder::with(files.iter().map(|(name, bytes)| (*name, &bytes[..])));
    let (named, counted, oldest_running) = (how & 0x80 != 0, how & 0x40 != 0, (how & 0x20 != 0).then_some(1000));
    let found =
        match relations(&folder.0, named.then_some(Wanted::Name("public.t")), named.then_some(Wanted::Name("d"))) {
            Ok(found) => found.relations,
            Err(e) => {
                assert!(!e.message.is_empty() && !e.kind.as_str().is_empty(), "{e}");
                return e.kind.as_str();
            }
        };
    let mut reached = if found.is_empty() { "no relation" } else { "nothing old" };
    let rows: Vec<u64> = found.iter().map(|relation| old_rows(relation, oldest_running)).collect();
    if rows.iter().any(|n| *n > 0) {
        reached = "old rows";
    }
    if !counted {
        return reached;
    }
    let threads = 1 + how / 6 % 2;
    let tallies = scan(&found, Look { oldest_running, verify: how & 0x10 != 0, threads }, &mut |done, all| {
        assert!(done <= all, "{done} of {all} bytes");
        true
    });
    let tallies = tallies.expect("files that nobody else touches").expect("nobody ended it");
    for ((relation, tally), rows) in found.iter().zip(&tallies).zip(rows) {
        check(relation, tally, rows);
        match relation.what {
            What::Table(_) if tally.unread_pages + tally.unread_rows > 0 => reached = "unread",
            What::Table(_) => {}
            _ if tally.any.pages > 0 => reached = "old index",
            _ => {}
        }
    }
    reached
}

/// How many rows of a table are old, found page by page.
fn old_rows(relation: &Relation, oldest_running: Option<u32>) -> u64 {
    let Some(mut pages) = OldPages::new(relation, oldest_running) else { return 0 };
    let (mut rows, mut before, mut last) = (0, 0, None);
    while let Some(found) = pages.next_pages(1).expect("a file that nobody else touches") {
        let (block, blocks) = pages.progress();
        assert!(block > before && block <= blocks, "no progress at block {block}");
        before = block;
        for page in &found {
            assert!(last < Some(page.block) && page.block < block && page.room <= BLOCK, "{page:?}");
            assert!(!page.rows.is_empty() && page.rows.len() <= MOST_ROWS, "{page:?}");
            assert!(page.rows.windows(2).all(|pair| pair[0].0.lp < pair[1].0.lp), "{page:?}");
            for (row, new_len) in &page.rows {
                assert!(row.reasons != 0 && Reason::ALL.iter().all(|r| r.is_of_rows() || row.reasons & r.bit() == 0));
                assert!(usize::from(row.len) <= BLOCK && row.dropped_in_row <= row.len, "{row:?}");
                assert!(*new_len >= 24, "{row:?}");
            }
            last = Some(page.block);
            rows += page.rows.len() as u64;
        }
    }
    rows
}

/// What was counted is no more than there is, and of a table it is what is found page by page.
fn check(relation: &Relation, tally: &Tally, rows: u64) {
    let blocks = u64::from(relation.file.blocks);
    assert!(!tally.vanished && tally.pages <= blocks && tally.unread_pages <= tally.pages, "{tally:?}");
    assert!(tally.any.pages <= blocks && tally.any.rows <= blocks * MOST_ROWS as u64, "{tally:?}");
    if matches!(relation.what, What::Table(_)) {
        assert_eq!(tally.pages + tally.gone_pages, blocks, "{tally:?}");
    }
    for reason in Reason::ALL {
        let count = tally.of(reason);
        assert!(count.rows <= tally.any.rows && count.pages <= tally.any.pages, "{reason:?} of {tally:?}");
    }
    // Pages with a wrong checksum are counted as unread, and looked at nevertheless by whoever rewrites rows.
    if matches!(relation.what, What::Table(_)) && !relation.dir.checksums {
        assert_eq!(tally.any.rows, rows, "{tally:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_were_there_when_a_file_was_opened_are_counted_as_gone() {
        let files = data_dir::files_with_indexes(17, &[]);
        let folder = Folder::with(files.iter().map(|(name, bytes)| (*name, &bytes[..])));
        let mut found = relations(&folder.0, None, None).expect("a sound data directory").relations;
        let table = found.iter().position(|r| matches!(r.what, What::Table(_))).expect("it has a table");
        let there = u64::from(found[table].file.blocks);
        found[table].file.blocks += 3;
        let tallies = scan(&found, Look::default(), &mut |_, _| true).expect("a file").expect("nobody ended it");
        assert_eq!((tallies[table].pages, tallies[table].gone_pages), (there, 3));
        let oid = found[table].oid;
        let by_oid =
            |oid| relations(&folder.0, Some(Wanted::Oid(oid)), None).map(|r| r.relations.iter().any(|r| r.oid == oid));
        assert_eq!((by_oid(oid), by_oid(oid + 1).map_err(|e| e.kind.as_str())), (Ok(true), Err("not_found")));
    }
}
