//! What every capture has, whatever else is recorded: the clocks against each other, and the cost of the tool.

use crate::clock::ClockReading;
use crate::self_cost::{process_cpu_ns, Cost, OwnMemory};
use crate::tables::OpenTables;
use crate::ticker::Tick;
use leadline_capture::Value;
use leadline_errors::Error;

/// Writes a row of `clock` and one of `self_cost` at each tick.
#[derive(Debug)]
pub struct OverheadProbe {
    at_start: (i64, i64),
    memory: OwnMemory,
}

impl Default for OverheadProbe {
    fn default() -> Self {
        OverheadProbe { at_start: process_cpu_ns(), memory: OwnMemory::default() }
    }
}

impl Tick for OverheadProbe {
    fn tick(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        let clock = ClockReading::now();
        let row = [clock.monotonic_ns, clock.realtime_ns, clock.boottime_ns, clock.uncertainty_ns];
        tables.write_rows("clock", [row.map(Value::Int).to_vec()])?;
        let (user, system) = process_cpu_ns();
        let written = tables.stats();
        let cost = Cost {
            ts,
            component: "process",
            user_ns: user - self.at_start.0,
            system_ns: system - self.at_start.1,
            rss_bytes: self.memory.rss_bytes(),
            bytes: written.values().map(|s| s.bytes as i64).sum(),
            rows: written.values().map(|s| s.rows as i64).sum(),
        };
        tables.write_rows("self_cost", [cost.row()])?;
        Ok(())
    }
}
