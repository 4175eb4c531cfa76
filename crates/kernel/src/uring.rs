//! Operations of io_uring, into the table.

use leadline_capture::Value;
use leadline_clockwork::{OpenTables, Row};
use leadline_errors::Error;

use crate::record::{Head, UringOp};

/// Names by opcode, as IORING_OP_* of the kernel (include/uapi/linux/io_uring.h).
const OPERATIONS: &str = "nop readv writev fsync read_fixed write_fixed poll_add poll_remove sync_file_range sendmsg recvmsg timeout \
    timeout_remove accept async_cancel link_timeout connect fallocate openat close files_update statx read write fadvise madvise send \
    recv openat2 epoll_ctl splice provide_buffers remove_buffers tee shutdown renameat unlinkat mkdirat symlinkat linkat msg_ring \
    fsetxattr setxattr fgetxattr getxattr socket uring_cmd send_zc sendmsg_zc read_multishot waitid futex_wait futex_wake futex_waitv \
    fixed_fd_install ftruncate bind listen recv_zc epoll_wait readv_fixed writev_fixed pipe";

/// Operations on a file that a descriptor stands for.
const WITH_FILE: &[&str] = &[
    "readv",
    "writev",
    "fsync",
    "read_fixed",
    "write_fixed",
    "poll_add",
    "sync_file_range",
    "sendmsg",
    "recvmsg",
    "accept",
    "connect",
    "fallocate",
    "read",
    "write",
    "fadvise",
    "send",
    "recv",
    "shutdown",
    "send_zc",
    "sendmsg_zc",
    "read_multishot",
    "ftruncate",
    "bind",
    "listen",
    "readv_fixed",
    "writev_fixed",
];

/// A bit for each opcode with a file.
pub fn with_file() -> u64 {
    bits(WITH_FILE)
}

/// A bit for each opcode that reads or writes at a place.
pub fn with_place() -> u64 {
    bits(WITH_PLACE)
}

fn bits(of: &[&str]) -> u64 {
    let names = OPERATIONS.split_whitespace().enumerate();
    names.filter(|(_, name)| of.contains(name)).fold(0, |bits, (opcode, _)| bits | 1 << opcode)
}

/// Operations that read or write at a place of their file.
const WITH_PLACE: &[&str] =
    &["readv", "writev", "read_fixed", "write_fixed", "read", "write", "readv_fixed", "writev_fixed"];

/// Those of them that ask for so many vectors, not for so many bytes.
const WITH_VECTORS: &[&str] = &["readv", "writev", "readv_fixed", "writev_fixed"];

/// Operations until they are written.
#[derive(Debug, Default)]
pub struct UringOps {
    done: Vec<(Head, UringOp, i32)>,
}

impl UringOps {
    /// An operation of thread `thread_id` was completed.
    pub fn push(&mut self, head: Head, op: UringOp, thread_id: i32) {
        self.done.push((head, op, thread_id));
    }

    /// Writes those that are new.
    pub fn write(&mut self, tables: &mut OpenTables) -> Result<(), Error> {
        self.done.sort_by_key(|(head, ..)| head.ts);
        tables.write_rows("io_uring_op", self.done.iter().map(|(head, op, thread_id)| row(*head, op, *thread_id)))?;
        self.done.clear();
        Ok(())
    }
}

fn row(head: Head, op: &UringOp, thread_id: i32) -> Row<'static> {
    let operation = OPERATIONS.split_whitespace().nth(op.opcode as usize).unwrap_or("other");
    let if_so = |known: bool, value: i64| if known { Value::Int(value) } else { Value::Null };
    let at_place = WITH_PLACE.contains(&operation);
    vec![
        Value::Int(head.ts as i64),
        Value::Int(op.duration_ns as i64),
        Value::Int(thread_id.into()),
        Value::Text(operation),
        Value::Int(op.result.into()),
        Value::Int(op.file_id.into()),
        Value::Bool(op.by_worker),
        if_so(at_place && !WITH_VECTORS.contains(&operation), op.bytes as i64),
        if_so(at_place && op.place >= 0, op.place),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_stand_at_their_numbers() {
        let at = |name| OPERATIONS.split_whitespace().position(|each| each == name);
        assert_eq!([at("nop"), at("fsync"), at("read"), at("write"), at("pipe")], [0, 3, 22, 23, 62].map(Some));
        assert!([WITH_FILE, WITH_PLACE, WITH_VECTORS].concat().iter().all(|name| at(name).is_some()));
        assert_eq!(with_file() & 0b1111, 0b1110);
    }
}
