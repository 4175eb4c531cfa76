//! What was seen as rows of `wire_interval`, `wire_connection` and `wire_roundtrip`.

use std::sync::Arc;

use arrow_array::{ArrayRef, BooleanArray, Int32Array, Int64Array, StringArray};
use leadline_capture::Value;
use leadline_clockwork::{OpenTables, OwnedRow};
use leadline_errors::Error;

use crate::analyser::{Analyser, Interval};
use crate::connection::Connection;
use crate::sizes::WAYS;
use crate::talk::trip::Trip;

/// Name of the table of connections.
pub const CONNECTIONS: &str = "wire_connection";

impl Analyser {
    /// Writes the rows that wait and forgets them.
    ///
    /// # Errors
    /// A table cannot be written.
    pub fn write(&mut self, tables: &mut OpenTables) -> Result<(), Error> {
        let interval_ns = self.interval_ns();
        let rows =
            self.intervals.drain(..).flat_map(|interval| interval_rows(&interval, interval_ns)).collect::<Vec<_>>();
        tables.write_rows("wire_interval", rows)?;
        if !self.trips.is_empty() {
            // Those of one connection come in order, those of several nearly.
            self.trips.sort_by_key(|(_, trip)| trip.ts);
            tables.write_columns("wire_roundtrip", trip_columns(&self.trips))?;
            self.trips.clear();
        }
        let rows: Vec<OwnedRow> = self.closed.drain(..).map(|c| connection_row(&c)).collect();
        tables.write_rows(CONNECTIONS, rows.iter().map(OwnedRow::row))?;
        Ok(())
    }
}

fn interval_rows(interval: &Interval, interval_ns: i64) -> Vec<Vec<Value<'static>>> {
    let ways = WAYS.iter().zip(&interval.ways).filter(|(_, sizes)| sizes.packets > 0);
    ways.map(|(way, sizes)| {
        vec![
            Value::Int(interval.ts + interval_ns),
            Value::Int(interval_ns),
            Value::Text(way),
            Value::Int(sizes.packets as i64),
            Value::Int(sizes.wire_bytes as i64),
            Value::Int(sizes.payload_bytes as i64),
            Value::Int(sizes.least.into()),
            Value::Int(sizes.most.into()),
            Value::Float(sizes.mean().unwrap_or(0.0)),
            Value::Float(sizes.deviation().unwrap_or(0.0)),
        ]
    })
    .collect()
}

fn trip_columns(trips: &[(i64, Trip)]) -> Vec<ArrayRef> {
    let long =
        |of: fn(&Trip) -> i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values(trips.iter().map(|(_, t)| of(t)))) };
    let maybe = |of: fn(&Trip) -> Option<i64>| -> ArrayRef {
        Arc::new(trips.iter().map(|(_, t)| of(t)).collect::<Int64Array>())
    };
    let count = |of: fn(&Trip) -> u32| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(trips.iter().map(|(_, t)| i32::try_from(of(t)).unwrap_or(i32::MAX))))
    };
    vec![
        long(|t| t.ts),
        Arc::new(Int32Array::from_iter_values(trips.iter().map(|(id, _)| i32::try_from(*id).unwrap_or(i32::MAX)))),
        Arc::new(StringArray::from_iter_values(trips.iter().map(|(_, t)| t.purpose.name()))),
        long(|t| t.request_last - t.ts),
        long(|t| t.request_bytes as i64),
        count(|t| t.request_segments),
        maybe(|t| t.first.map(|first| first - t.ts)),
        maybe(|t| t.last.map(|last| last - t.ts)),
        long(|t| t.response_bytes as i64),
        count(|t| t.response_segments),
        maybe(|t| t.client_gap),
        count(|t| t.retransmits),
        long(|t| t.held_ns),
        count(|t| t.statements),
        count(|t| t.pipelined),
        count(|t| t.fetches),
        count(|t| t.continued),
        count(|t| t.suspended),
        count(|t| t.cursors),
        count(|t| t.cursor_fetches),
        long(|t| t.rows as i64),
        count(|t| t.transactions),
        count(|t| t.errors),
        Arc::new(BooleanArray::from(trips.iter().map(|(_, t)| t.in_transaction).collect::<Vec<_>>())),
    ]
}

/// A connection in the order of the columns of its table.
pub fn connection_row(c: &Connection) -> OwnedRow {
    let mut row = OwnedRow::default();
    let about = &c.talk.about;
    let [up, down] = [&c.streams[0].sent, &c.streams[1].sent];
    row.int(c.from).int(c.to).int(c.id);
    row.text(c.client.addr_text()).int(c.client.port).text(c.server.addr_text()).int(c.server.port);
    row.text(c.known.name()).truth(c.is_from_start()).text(c.end_name());
    row.text(c.talk.protocol()).truth(c.talk.is_read()).text(about.tls.name()).text(about.gss.name());
    row.text(about.auth.name()).maybe(about.let_in.map(i64::from)).truth(about.password_readable);
    row.text(&*about.user).text(&*about.database).text(&*about.application).text(&*about.sqlstate);
    row.maybe(c.handshake_ns).maybe(c.least_ack_ns()).maybe(c.connect_ns());
    for (sent, copies) in [(up, c.copies[0]), (down, c.copies[1])] {
        row.int(sent.packets as i64).int(copies as i64).int(sent.wire_bytes as i64).int(sent.payload_bytes as i64);
        row.int(sent.segments as i64).int(sent.retransmits as i64).int(sent.out_of_order as i64);
        row.int(sent.late as i64).int(sent.keepalives as i64);
        row.int(sent.gaps as i64).int(sent.gap_bytes as i64).int(sent.cut as i64).int(sent.zero_windows as i64);
        row.int(sent.mss);
    }
    let (held, held_ns) = c.held();
    row.int(c.again_ns()).int(held as i64).int(held_ns);
    row.int(about.lost_places as i64).int(c.cut_messages as i64).int(c.talk.unasked_bytes as i64);
    let trips = &c.trips;
    let read = c.is_counted();
    row.int(trips.setup as i64).int(trips.answered as i64).int(trips.unanswered as i64);
    row.int(trips.answer_ns).int(trips.transfer_ns).int(trips.client_ns);
    let parts = [trips.fetches, trips.continued, trips.suspended, trips.cursors, trips.cursor_fetches];
    let counts = [trips.transactions, trips.errors, trips.pipelined];
    for count in [trips.statements].into_iter().chain(parts).chain(counts) {
        row.maybe(read.then_some(count as i64));
    }
    row.maybe((c.talk.protocol() == "postgresql" && read).then_some(trips.rows as i64));
    row
}
