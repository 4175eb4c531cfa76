//! Every change of a page (or of a relation, or of whatever a filter names), with how its transaction ended.

use std::collections::HashMap;
use std::sync::Arc;

use crate::describe::{describe, outcome, time_of, truncation, Fields, Outcome};
use crate::filter::Filter;
use crate::reader::Again;
use crate::reader::{Ending, Reader};
use crate::record::{Block, Record};
use crate::rmgr;
use crate::wal::{Range, Wal};
use leadline_datadir::Lsn;
use leadline_errors::Result;

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
    /// The last time the WAL told before the record, in Unix microseconds.
    pub log_time: Option<i64>,
    /// How the transaction ended and when; none when the range does not say.
    pub outcome: Option<(&'static str, i64)>,
}

/// The changes of the blocks a filter names, in the order of the WAL.
///
/// # Errors
/// Those of [`Reader::next_record`].
pub fn history(
    log: &Arc<Wal>,
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
            let mut ends = |xid: u32| {
                // A prepared transaction ends later: what is told now is not the last word.
                let known = if end.kind == "prepare" { open.get(&xid).cloned() } else { open.remove(&xid) };
                for at in known.unwrap_or_default() {
                    changes[at].outcome = Some((end.kind, end.time));
                }
            };
            end.subxacts.known.iter().chain([&end.xid]).for_each(|xid| ends(*xid));
            more_subxacts(log, &record, &end, &mut ends)?;
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

/// Those subtransactions of a long record that were not kept.
fn more_subxacts(log: &Arc<Wal>, record: &Record<'_>, end: &Outcome, ends: &mut dyn FnMut(u32)) -> Result<()> {
    const AT_ONCE: usize = 1 << 16;
    if end.subxacts.left_out == 0 {
        return Ok(());
    }
    let (mut again, mut bytes) = (Again::of(log, record, end.subxacts.rest_at), Vec::new());
    let mut left = 4 * end.subxacts.left_out;
    while left > 0 {
        bytes.clear();
        again.read(left.min(AT_ONCE), &mut bytes)?;
        left -= left.min(AT_ONCE);
        for xid in bytes.chunks_exact(4) {
            ends(u32::from_le_bytes([xid[0], xid[1], xid[2], xid[3]]));
        }
    }
    Ok(())
}
