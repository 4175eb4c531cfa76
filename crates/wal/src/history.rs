//! Every change of a page (or of a relation, or of whatever a filter names), with how its transaction ended.

use std::collections::HashMap;
use std::sync::Arc;

use crate::describe::{describe, outcome, time_of, truncation, Fields};
use crate::error::Result;
use crate::filter::Filter;
use crate::log::{Log, Range};
use crate::lsn::Lsn;
use crate::reader::{Ending, Reader};
use crate::record::Block;
use crate::rmgr;

/// One change.
#[derive(Debug, Clone)]
pub struct Change {
    /// The record, and where it ends: `pd_lsn` of the page after it.
    pub lsn: Lsn,
    /// Where it ends.
    pub end: Lsn,
    /// Transaction, 0 for none (pruning, vacuum, images).
    pub xid: u32,
    /// Resource manager and kind.
    pub type_id: u16,
    /// The block as the record refers to it; none when the relation became shorter and lost it.
    pub block: Option<Block>,
    /// What the record says.
    pub description: Fields,
    /// The last time the log told before the record, in Unix microseconds.
    pub log_time: Option<i64>,
    /// How the transaction ended and when; none when the range does not say.
    pub outcome: Option<(&'static str, i64)>,
}

/// The changes of the blocks a filter names, in the order of the log.
///
/// # Errors
/// Those of [`Reader::next_record`].
pub fn history(
    log: &Arc<Log>,
    range: Range,
    filter: &Filter,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<(Vec<Change>, Ending)> {
    let mut reader = Reader::new(log.clone(), range);
    let mut changes: Vec<Change> = Vec::new();
    // Transactions whose end is still to come, with their changes.
    let mut open: HashMap<u32, Vec<usize>> = HashMap::new();
    let (mut log_time, mut count) = (None, 0u32);
    while let Some(record) = reader.next_record()? {
        if let Some(time) = time_of(&record) {
            log_time = Some(time);
        }
        if let Some(end) = outcome(&record) {
            for xid in end.subxacts.iter().chain([&end.xid]) {
                // A prepared transaction ends later: what is told now is not the last word.
                let known = if end.kind == "prepare" { open.get(xid).cloned() } else { open.remove(xid) };
                for at in known.unwrap_or_default() {
                    changes[at].outcome = Some((end.kind, end.time));
                }
            }
        }
        let lost = truncation(&record).is_some_and(|(relation, blocks)| filter.loses(relation, blocks));
        if lost || filter.wants(&record) {
            let blocks = record.blocks.iter().filter(|b| filter.wants_block(b)).copied().map(Some);
            for block in blocks.chain(lost.then_some(None)) {
                if record.xid != 0 {
                    open.entry(record.xid).or_default().push(changes.len());
                }
                changes.push(Change {
                    lsn: record.start,
                    end: record.end,
                    xid: record.xid,
                    type_id: rmgr::type_id(record.rmid, record.info),
                    block,
                    description: describe(&record),
                    log_time,
                    outcome: None,
                });
            }
        }
        count = count.wrapping_add(1);
        if count % (1 << 16) == 0 && !go_on(reader.position().0 - range.from.0) {
            break;
        }
    }
    Ok((changes, reader.ending().clone()))
}
