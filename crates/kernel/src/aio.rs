//! What `io_submit` hands over, into the table.

use leadline_capture::Value;
use leadline_clockwork::OpenTables;
use leadline_errors::Error;

use crate::record::{Aio, Head};

/// Names by opcode, as IOCB_CMD_* of the kernel (include/uapi/linux/aio_abi.h), named as those of io_uring.
const OPERATIONS: [&str; 9] = ["read", "write", "fsync", "fdatasync", "other", "poll_add", "nop", "readv", "writev"];

/// Requests until they are written.
#[derive(Debug, Default)]
pub struct Aios {
    begun: Vec<(Head, Aio, i32)>,
}

impl Aios {
    /// Thread `thread_id` handed one over.
    pub fn push(&mut self, head: Head, aio: Aio, thread_id: i32) {
        self.begun.push((head, aio, thread_id));
    }

    /// Writes those that are new.
    pub fn write(&mut self, tables: &mut OpenTables) -> Result<(), Error> {
        self.begun.sort_by_key(|(head, ..)| head.ts);
        let rows = self.begun.iter().map(|(head, aio, thread_id)| {
            let operation = OPERATIONS.get(aio.opcode as usize).copied().unwrap_or("other");
            let known = operation == "read" || operation == "write"; // of those with vectors it is how many there are
            vec![
                Value::Int(head.ts as i64),
                Value::Int((*thread_id).into()),
                Value::Text(operation),
                Value::Int(aio.file_id.into()),
                if known { Value::Int(aio.bytes as i64) } else { Value::Null },
                Value::Int(aio.place),
            ]
        });
        tables.write_rows("io_submit_op", rows)?;
        self.begun.clear();
        Ok(())
    }
}
