//! Requests of block devices, into the table.

use std::collections::HashMap;

use leadline_capture::Value;
use leadline_clockwork::{OpenTables, Row};
use leadline_errors::Error;

use crate::record::{BlockIo, Head};

/// The requests that were done, and the names of the devices.
#[derive(Debug, Default)]
pub struct BlockIos {
    names: HashMap<u32, String>,
    done: Vec<(Head, BlockIo, i32)>,
}

impl BlockIos {
    /// A request was done for thread `thread_id`; 0: one that is not traced.
    pub fn push(&mut self, head: Head, io: BlockIo, thread_id: i32) {
        self.done.push((head, io, thread_id));
    }

    /// Writes those that are new.
    pub fn write(&mut self, tables: &mut OpenTables) -> Result<(), Error> {
        self.done.sort_by_key(|(head, ..)| head.ts);
        for (_, io, _) in &self.done {
            self.names.entry(io.device).or_insert_with(|| device_name(io.device));
        }
        let rows = self.done.iter().map(|(head, io, thread_id)| self.row(*head, io, *thread_id));
        tables.write_rows("block_io", rows)?;
        self.done.clear();
        Ok(())
    }

    fn row<'a>(&'a self, head: Head, io: &'a BlockIo, thread_id: i32) -> Row<'a> {
        vec![
            Value::Int(head.ts as i64),
            Value::Int(io.queue_ns as i64),
            Value::Int(io.service_ns as i64),
            Value::Text(self.names.get(&io.device).map_or("", String::as_str)),
            Value::Text(operation(io.flags & 0xff)),
            Value::Int((io.flags >> 8).into()),
            Value::Int(io.sector as i64),
            Value::Int(io.bytes.into()),
            Value::Int(io.error.into()),
            Value::Int(thread_id.into()),
            Value::Int(head.tid.into()),
            Value::Text(&io.comm),
        ]
    }
}

/// REQ_OP_* of the kernel (include/linux/blk_types.h).
fn operation(number: u32) -> &'static str {
    match number {
        0 => "read",
        1 => "write",
        2 => "flush",
        3 | 5 => "discard",
        9 => "write zeroes",
        _ => "other",
    }
}

/// The name of a disk; its numbers when it has none.
fn device_name(device: u32) -> String {
    let (major, minor) = (device >> 20, device & 0xf_ffff);
    let about = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/uevent")).unwrap_or_default();
    let name = about.lines().find_map(|line| line.strip_prefix("DEVNAME="));
    name.map_or_else(|| format!("{major}:{minor}"), ToOwned::to_owned)
}
