//! A simulator of disk arrays, event by event: drives with seek and rotation, solid-state drives and limited devices; RAID 0, 1, 10, 5 and
//! 6; caches of controllers; and the load on them, as a profile or as the block trace of a real run.
//!
//! It does no I/O. The same files and the same seed give the same run.

#![forbid(unsafe_code)]

mod array;
mod cache;
mod drive;
mod engine;
mod layout;
mod raid;
mod random;
mod results;
mod seek;
mod trace;

#[cfg(test)]
mod tests;

use std::sync::atomic::AtomicBool;

use leadline_errors::{Error, Kind, Result};
use serde_json::{json, Value};

pub use crate::layout::{DriveSpec, Layout, Load, Loads, Order};
pub use crate::trace::{Loop, TraceRow};

use crate::array::{Array, Extent};
use crate::engine::{Clients, Event, Run, Traced};
use crate::trace::Replay;

/// Longest run, in seconds.
pub const LONGEST_S: f64 = 1e6;

fn ns(seconds: f64) -> u64 {
    (seconds.clamp(0.0, LONGEST_S) * 1e9) as u64
}

/// One run of a load on a layout: what came of it, as JSON. Stops early when `stop` is set.
pub fn simulate(
    layout: &Layout,
    load: &Load,
    seed: u64,
    for_s: f64,
    warm_up_s: f64,
    stop: &AtomicBool,
) -> Result<Value> {
    let array = Array::new(layout)?;
    let clients = Clients::new(load, &array, &layout.name, seed)?;
    let mut run = Run::new(array, clients, None);
    run.at(ns(warm_up_s), Event::Counting);
    run.start();
    run.run(ns(warm_up_s) + ns(for_s), stop)?;
    Ok(run.as_json())
}

/// A trace once more on a layout. `rows` are in the order in which they were issued. Stops early when `stop` is set.
pub fn replay(layout: &Layout, rows: &[TraceRow], how: Loop, stop: &AtomicBool) -> Result<Value> {
    let begin = rows.iter().map(|row| row.issued).min().unwrap_or(0);
    let end = rows.iter().map(|row| row.issued.max(row.ended)).max().unwrap_or(0);
    if end - begin > ns(LONGEST_S) {
        return Err(
            Error::new(Kind::Invalid, "the trace is too long").detail(format!("{} s", (end - begin) / 1_000_000_000))
        );
    }
    let array = Array::new(layout)?;
    let (mut places, mut beyond) = (Vec::with_capacity(rows.len()), 0u64);
    for row in rows {
        let lun = lun_of(layout, &array, &row.device)?;
        if row.bytes == 0 || row.bytes > lun.bytes {
            return Err(Error::new(
                Kind::Invalid,
                format!("a request of {} bytes does not fit the LUN of {}", row.bytes, row.device),
            ));
        }
        // A LUN that is smaller than the device: its addresses begin anew.
        let room = lun.bytes - row.bytes + 1;
        beyond += u64::from(row.at >= room);
        places.push((lun.group, lun.at + row.at % room));
    }
    let traced = Traced { rows, places, replay: Replay::new(rows, how) };
    let threads = traced.replay.threads();
    let mut run = Run::new(array, Clients::none(), Some(traced));
    (0..threads).for_each(|thread| run.plan_traced(thread));
    run.run(u64::MAX, stop)?;
    let mut out = run.as_json();
    out["beyond_lun"] = json!(beyond);
    Ok(out)
}

fn lun_of(layout: &Layout, array: &Array, device: &str) -> Result<Extent> {
    let named = layout.device.get(device).or_else(|| {
        let first = layout.groups.first().and_then(|group| group.luns.first());
        first.filter(|_| layout.device.is_empty())
    });
    let lun = named.and_then(|lun| array.luns.get(lun)).copied();
    lun.ok_or_else(|| {
        Error::new(Kind::Invalid, format!("layout {} does not say on which LUN {device} lies", layout.name))
            .hint(format!("add it to [device]: {device} = \"lun\""))
    })
}
