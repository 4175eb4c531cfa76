//! Pages of `pg_xact`: two bits for each transaction. Nothing in such a page says what it is: its folder does.
//!
//! Source: src/backend/access/transam/clog.c, src/include/access/clog.h. Files of 32 pages, named by their number in hex.

use leadline_bytes::Endian;

use crate::part::{FieldKind, Part, Value};
use crate::reader::Reader;

/// Pages of a file.
pub const SLRU_PAGES_PER_SEGMENT: u32 = 32;
/// Transactions in a byte, the first in the lowest bits.
const CLOG_XACTS_PER_BYTE: u32 = 4;
/// Runs that are listed: a page in which every transaction is another than the one before has thousands.
const MOST_RUNS: usize = 1000;

/// The two bits.
const STATUS: [(&str, &str); 4] = [
    ("TRANSACTION_STATUS_IN_PROGRESS", "in progress, crashed, or not started"),
    ("TRANSACTION_STATUS_COMMITTED", "committed"),
    ("TRANSACTION_STATUS_ABORTED", "aborted"),
    ("TRANSACTION_STATUS_SUB_COMMITTED", "subtransaction that ended before its parent"),
];

/// A page taken apart; `page` counts from the first file on. Numbers of transactions begin anew after 2^32.
pub fn describe_clog(bytes: &[u8], page: u32) -> Vec<Part> {
    let per_page = CLOG_XACTS_PER_BYTE.wrapping_mul(bytes.len() as u32);
    let first = page.wrapping_mul(per_page);
    let status = |i: usize| usize::from(bytes.get(i / 4).copied().unwrap_or(0) >> (i % 4 * 2) & 3);
    let mut counts = [0u64; 4];
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut more = 0u64;
    for i in 0..4 * bytes.len() {
        let now = status(i);
        counts[now] += 1;
        if i > 0 && status(i - 1) == now {
            continue;
        }
        if runs.len() < MOST_RUNS {
            runs.push((i, now));
        } else {
            more += 1;
        }
    }
    let mut r = Reader::new(bytes, Endian::Little, "transactions", FieldKind::Data, 0, bytes.len());
    r.bytes_to("statuses", FieldKind::Data, bytes.len());
    r.derived("first_xid", Value::Number(first.into()));
    let names = ["in_progress", "committed", "aborted", "sub_committed"];
    for (name, count) in names.into_iter().zip(counts) {
        r.derived(name, Value::Number(count));
    }
    if more > 0 {
        r.derived("runs_not_listed", Value::Number(more));
    }
    let mut parts = vec![r.finish()];
    let listed_to = if more > 0 { None } else { Some(4 * bytes.len()) };
    for (n, (from, now)) in runs.iter().enumerate() {
        let Some(to) = runs.get(n + 1).map(|r| r.0).or(listed_to) else { break };
        let at = from / 4;
        let mut r =
            Reader::new(bytes, Endian::Little, "run", FieldKind::Data, at, to.div_ceil(4)).numbered(n as u32 + 1);
        let xid = |i: usize| Value::Number(first.wrapping_add(i as u32).into());
        r.derived("first_xid", xid(*from)).derived("last_xid", xid(to - 1));
        r.derived("status", Value::Number(*now as u64)).words(STATUS[*now].1);
        r.named(STATUS[*now].0);
        parts.push(r.finish());
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_and_counts_are_those_of_the_bits() {
        // 3 committed from 0x100 on, one aborted, the rest of the page nothing.
        let mut page = vec![0u8; 64];
        page[0] = 0b1001_0101;
        let parts = describe_clog(&page, 1);
        let run = |n: usize| ["first_xid", "last_xid", "status"].map(|f| parts[n].number_of(f).unwrap());
        assert_eq!((run(1), run(2), run(3)), ([256, 258, 1], [259, 259, 2], [260, 511, 0]));
        assert_eq!(parts[0].number_of("committed"), Some(3));
        assert_eq!(parts[2].field("status").unwrap().flags, ["TRANSACTION_STATUS_ABORTED"]);
        assert_eq!(crate::regions(&parts, 64).len(), 1);
        assert_eq!(describe_clog(&[], 7).len(), 1);
    }

    #[test]
    fn a_page_of_many_runs_says_how_many_are_not_listed() {
        let parts = describe_clog(&[0b0001_0001; 8192], u32::MAX);
        assert_eq!(parts[0].number_of("runs_not_listed"), Some(32_768 - MOST_RUNS as u64));
        assert_eq!(parts.len(), MOST_RUNS); // the last one's end is not known
    }
}
