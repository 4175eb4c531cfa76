//! Messages read from a connection, and what a server says turned into a fault.

use leadline_protocol::backend::{self, Failure, HEAD};

use crate::fault::{Fault, Outcome};
use crate::link::Link;

/// Type and length of the body of the next message. The body is still to be taken.
pub(super) fn head(link: &mut Link) -> Outcome<(u8, usize)> {
    let phase = link.phase;
    let head = link.take(HEAD)?.first_chunk().and_then(|head| backend::head(*head));
    head.ok_or_else(|| Fault::protocol(phase, "the answer is not that of a PostgreSQL server"))
}

/// What an ErrorResponse says: its SQLSTATE and its message.
pub(super) fn error(phase: &'static str, body: &[u8]) -> Fault {
    let Failure { sqlstate, message } = Failure::of(body);
    let cause = if sqlstate.is_empty() { "protocol".to_owned() } else { sqlstate };
    Fault { phase, cause, text: message }
}
