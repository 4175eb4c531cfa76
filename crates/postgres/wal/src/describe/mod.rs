//! What a record says, field by field, with the owner's names; and the few facts that commands look for in all records.
//!
//! Sources: the `*_xlog.h` of each resource manager and `access/rmgrdesc/*.c` of each major. A record that is shorter than
//! its kind says (never seen from a server) gives the fields it has and what is missing. A long record of which not all is kept
//! ([`crate::kept`]) gives the fields it has, and as `left_out` what would follow.

mod btree;
mod fields;
mod heap;
mod inval;
mod main_data;
mod rest;
mod sequence;
mod xact;
mod xlog;

use crate::kept::List;
use crate::record::Record;
use crate::rmgr::{self, id};
use leadline_datadir::RelFile as Relation;

pub use fields::{time_text, Field, Fields, Value};
pub use inval::Message;
pub use xact::Outcome;

use fields::Reading;

/// Everything known about the main data (and where it says more, the data of blocks) of a record.
///
/// Resource managers without fields here (hash, gin, gist, spgist, brin, generic, extensions) give none.
pub fn describe(record: &Record<'_>) -> Fields {
    let mut to = Reading::new(record);
    let outcome = match record.rmid {
        id::XLOG => xlog::describe(record, &mut to),
        id::XACT => xact::describe(record, &mut to),
        id::HEAP => heap::describe(record, &mut to),
        id::HEAP2 => heap::describe2(record, &mut to),
        id::BTREE => btree::describe(record, &mut to),
        id::SEQ => sequence::describe(&mut to),
        _ => rest::describe(record, &mut to),
    };
    if let Err(truncated) = outcome {
        to.cut(&truncated);
    }
    to.finish()
}

/// The time a record tells, in Unix microseconds: commits, aborts, prepared transactions, checkpoints, restore points.
pub fn time_of(record: &Record<'_>) -> Option<i64> {
    let at = match (record.rmid, record.info & rmgr::OPCODE_MASK) {
        (id::XACT, _) => return xact::outcome(record).map(|o| o.time),
        // CheckPoint.time counts Unix seconds.
        (id::XLOG, xlog::CHECKPOINT_SHUTDOWN | xlog::CHECKPOINT_ONLINE) => {
            let seconds = record.main_data().get(xlog::CHECKPOINT_TIME_AT..)?.get(..8)?;
            return i64::from_le_bytes(seconds.try_into().ok()?).checked_mul(1_000_000);
        }
        (id::XLOG, xlog::RESTORE_POINT | xlog::END_OF_RECOVERY) => 0,
        _ => return None,
    };
    let bytes = record.main_data().get(at..at + 8)?;
    Some(fields::unix_us(i64::from_le_bytes(bytes.try_into().ok()?)))
}

/// How a transaction ended, when the record says it.
pub fn outcome(record: &Record<'_>) -> Option<Outcome> {
    if record.rmid == id::XACT {
        xact::outcome(record)
    } else {
        None
    }
}

/// The invalidation messages of a record: of a commit, of a command inside a transaction, or of a session outside one.
pub fn messages(record: &Record<'_>) -> List<Message> {
    match record.rmid {
        id::XACT => xact::messages(record),
        id::STANDBY => rest::standby_messages(record),
        id::HEAP => heap::inplace_messages(record),
        _ => List::none(),
    }
}

/// Where in the main data of a long record the next piece begins without which it cannot be told what there is.
pub(crate) fn missing(record: &Record<'_>) -> Option<usize> {
    if record.rmid == id::XACT {
        xact::missing(record)
    } else {
        None
    }
}

/// Which relation a record makes shorter, and how many blocks its main fork has then.
pub(crate) fn truncation(record: &Record<'_>) -> Option<(Relation, u32)> {
    if record.rmid == id::SMGR {
        rest::truncation(record)
    } else {
        None
    }
}

/// The operation of a record, without the bits that say more about it.
fn opcode(record: &Record<'_>) -> u8 {
    record.info & rmgr::OPCODE_MASK
}
