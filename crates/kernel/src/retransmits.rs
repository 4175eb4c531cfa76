//! Segments of TCP that were sent again, into the table.

use leadline_capture::Value;
use leadline_clockwork::{OpenTables, Row};
use leadline_errors::Error;

use crate::files::address;
use crate::record::{Head, Retransmit};

/// TCP_* of the kernel (include/net/tcp_states.h), from 1 on; names as ss(8) and `tcp_sample` have them.
const STATES: &str =
    "ESTABLISHED SYN_SENT SYN_RECV FIN_WAIT1 FIN_WAIT2 TIME_WAIT CLOSE CLOSE_WAIT LAST_ACK LISTEN CLOSING NEW_SYN_RECV";

/// Segments until they are written.
#[derive(Debug, Default)]
pub struct Retransmits {
    seen: Vec<RetransmitRow>,
}

#[derive(Debug)]
struct RetransmitRow {
    ts: i64,
    segment: Retransmit,
    local: (String, i64),
    remote: (String, i64),
}

impl Retransmits {
    /// A segment was sent again.
    pub fn push(&mut self, head: Head, segment: Retransmit) {
        let of = |local| {
            address(&segment.at, local).map_or_else(Default::default, |a| (a.ip().to_string(), a.port().into()))
        };
        self.seen.push(RetransmitRow { ts: head.ts as i64, segment, local: of(true), remote: of(false) });
    }

    /// Writes those that are new.
    pub fn write(&mut self, tables: &mut OpenTables) -> Result<(), Error> {
        self.seen.sort_by_key(|row| row.ts);
        tables.write_rows("tcp_retransmit", self.seen.iter().map(row))?;
        self.seen.clear();
        Ok(())
    }
}

fn row(r: &RetransmitRow) -> Row<'_> {
    vec![
        Value::Int(r.ts),
        Value::Int(r.segment.file_id.into()),
        Value::Text(state_name(r.segment.state)),
        Value::Text(&r.local.0),
        Value::Int(r.local.1),
        Value::Text(&r.remote.0),
        Value::Int(r.remote.1),
        Value::Int(r.segment.bytes.into()),
    ]
}

fn state_name(state: u8) -> &'static str {
    let from_zero = usize::from(state).checked_sub(1);
    from_zero.and_then(|n| STATES.split_whitespace().nth(n)).unwrap_or("other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_stand_at_their_numbers() {
        assert_eq!(
            [0, 1, 2, 10, 12, 13].map(state_name),
            ["other", "ESTABLISHED", "SYN_SENT", "LISTEN", "NEW_SYN_RECV", "other"]
        );
    }
}
