//! The records that the BPF programs hand over (bpf/records.h).

/// What every record begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// CPU that wrote it.
    pub cpu: u32,
    /// Thread it is about, as our PID namespace numbers it.
    pub tid: u32,
    /// Number of the thread in the trace; 0: none that is traced. A tid is used again, this is not.
    pub thread: u32,
    /// See each record; ns on CLOCK_MONOTONIC.
    pub ts: u64,
}

/// One record.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // copied out of the ring once
pub enum Record<'a> {
    /// A thread was found, made, or given another program or name.
    Named(Head, Named),
    /// A thread or the window ended.
    End(Head, End),
    /// A system call returned; `head.ts` is when it began.
    Call(Head, Call),
    /// A stay off the CPU ended, which began at `head.ts`, and where it slept.
    OffCpu(Head, OffCpu, SleptIn<'a>),
    /// Where a thread was at `head.ts`; functions of the kernel, innermost first.
    Stack(Head, Stack, &'a [u8], &'a [u8]),
    /// Calls of one kind that a thread made up to `head.ts`.
    CallSum(Head, CallSum),
    /// What an open file is; the names of its path, the last one first, each with a zero at its end.
    OpenFile(Head, OpenFile, &'a [u8]),
    /// A request of a block device was done at `head.ts`; `head.tid`: who asked for it, 0 when that is not known.
    BlockIo(Head, BlockIo),
    /// An operation of io_uring was completed at `head.ts`; `head.tid`: who handed it over.
    UringOp(Head, UringOp),
    /// A thread called `io_submit` at `head.ts`: one of what it handed over.
    Aio(Head, Aio),
    /// A segment of TCP was sent again at `head.ts`.
    Retransmit(Head, Retransmit),
}

/// The functions of the kernel that a thread slept in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SleptIn<'a> {
    /// These, innermost first; none when they are not known.
    Functions(&'a [u8]),
    /// Those of the thread's last stay that had some.
    AsBefore,
}

/// Both ends of a socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Addresses {
    /// AF_* of a socket, else 0.
    pub family: u16,
    pub local_port: u16,
    pub remote_port: u16,
    pub local: [u8; 16],
    pub remote: [u8; 16],
}

/// A segment of TCP that was sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Retransmit {
    pub at: Addresses,
    /// The open file of its socket; 0: no traced thread has used it.
    pub file_id: u32,
    /// Without headers.
    pub bytes: u32,
    /// Of the connection, TCP_* of the kernel.
    pub state: u8,
}

/// An operation of io_uring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct UringOp {
    pub duration_ns: u64,
    /// As of the call that does the same: negative for an error.
    pub result: i32,
    pub opcode: u32,
    pub file_id: u32,
    /// A worker of the kernel did it.
    pub by_worker: bool,
    /// Of a read or write, what it asked for.
    pub bytes: u64,
    /// Where in the file; -1: where the descriptor stands.
    pub place: i64,
}

/// What a thread handed over by `io_submit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Aio {
    pub bytes: u64,
    pub place: i64,
    pub opcode: u32,
    pub file_id: u32,
}

/// What a file descriptor stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct OpenFile {
    pub inode: u64,
    /// Of the file system.
    pub magic: u64,
    pub file_id: u32,
    pub tgid: u32,
    /// `major << 20 | minor`.
    pub device: u32,
    pub mode: u32,
    /// As of open(2).
    pub flags: u32,
    pub nlink: u32,
    pub at: Addresses,
    pub socket_type: u16,
    pub protocol: u16,
    /// The names lead up to the root.
    pub whole: bool,
}

/// The calls of a thread with one number and error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct CallSum {
    pub since: u64,
    pub duration_ns: u64,
    pub sleep_ns: u64,
    pub runq_ns: u64,
    pub unknown_ns: u64,
    pub longest_ns: u64,
    pub calls: u64,
    pub sleeps: u64,
    pub nr: u16,
    /// 0: they did not fail.
    pub error: u16,
}

/// A request of a block device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct BlockIo {
    pub sector: u64,
    /// Until the device got it.
    pub queue_ns: u64,
    /// From then on.
    pub service_ns: u64,
    pub bytes: u32,
    /// Status of the block layer; 0: done.
    pub error: u32,
    /// `major << 20 | minor` of the whole disk.
    pub device: u32,
    /// Operation in the low 8 bits; flags.
    pub flags: u32,
    pub comm: String,
}

/// Why a stack was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It was on a CPU; the weight is ns.
    OnCpu,
    /// It had slept in calls, most recently in this one; the weight is ns.
    Asleep,
    /// A call failed; the weight is calls.
    Failed,
}

/// Where a thread was: registers of user mode; the bytes of its user stack follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Stack {
    pub why: Why,
    pub tgid: u32,
    /// System call; -1: none.
    pub nr: i32,
    /// Error of the call; 0: none.
    pub error: u32,
    pub weight: u64,
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    pub waker_tid: u32,
}

/// How a thread came into the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It was there when the trace began.
    Begin,
    /// It was made by another.
    Fork,
    /// It was given another program.
    Exec,
    /// It was given another name.
    Renamed,
    /// It is not traced, and woke a thread that is.
    Waker,
}

/// Who a thread is.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Named {
    pub origin: Origin,
    pub tgid: u32,
    pub other_tid: u32,
    pub start_ns: u64,
    pub comm: String,
}

/// What a thread did in the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub struct Totals {
    pub since: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    pub runq_preempt_ns: u64,
    pub runq_wake_ns: u64,
    pub sleep_ns: u64,
    pub sleep_d_ns: u64,
    pub stopped_ns: u64,
    pub unknown_ns: u64,
    pub calls: u64,
    pub failed_calls: u64,
    pub sleeps: u64,
    pub preemptions: u64,
    pub migrations: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    pub lost: u64,
    pub stat_run_ns: u64,
    pub stat_runq_ns: u64,
    pub stat_slices: u64,
    /// Of `user_ns` and `system_ns`, the part in interrupts; None: nobody knows.
    pub interrupt_ns: Option<u64>,
    /// None: nobody knows.
    pub scheduled: Option<Scheduled>,
}

/// How a thread was scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Scheduled {
    /// Of the migrations, those to another NUMA node.
    pub node_moves: u64,
    /// Its policy at the end, as SCHED_* of the kernel.
    pub policy: u32,
    /// Its priority as fifo and rr have it; else its nice value.
    pub priority: i32,
}

/// The end of a thread (`exited`), or of the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct End {
    pub tgid: u32,
    pub exited: bool,
    /// The fields `stat_*` and `*_faults` say what the kernel has counted; else nobody knows.
    pub counted: bool,
    pub totals: Totals,
}

/// A system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Call {
    pub duration_ns: u64,
    pub ret: i64,
    pub args: [u64; 6],
    pub sleep_ns: u64,
    pub runq_ns: u64,
    /// An event was missed: nobody knows what it did.
    pub unknown_ns: u64,
    pub sleeps: u32,
    pub nr: u16,
    /// It had begun before the trace; its arguments and its first part are not known.
    pub partial: bool,
    /// What its descriptor stands for; 0: nothing, or not known.
    pub file_id: u32,
}

/// A stay off the CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct OffCpu {
    pub duration_ns: u64,
    /// Until the waking; the rest it waited for a CPU.
    pub sleep_ns: u64,
    /// The task's state as the kernel has it; 0: it was preempted.
    pub state: u32,
    /// Who woke it; 0: an interrupt on an idle CPU.
    pub waker_tid: u32,
    /// System call; -1: none.
    pub nr: i32,
    /// Who was on the CPU just before; 0: nobody.
    pub before_tid: u32,
    /// It went on when the window ended.
    pub open: bool,
}

const HEAD: usize = 24;
const NAMED: usize = HEAD + 32;
const TOTALS: usize = 23;
const END: usize = HEAD + 8 + 8 * TOTALS;
const WHOLE_CALL: usize = 112;
const BRIEF_CALL: usize = 40;
const STAY: usize = 48;
const STAY_WITH_FUNCTIONS: usize = STAY + 8 * 12;
const TOGETHER: u32 = 5;
const AS_BEFORE: u16 = 0xffff;
const STACK_FRAMES: usize = HEAD + 64;
const STACK: usize = STACK_FRAMES + 8 * 32;
const BLOCK_IO: usize = HEAD + 56;
const CALL_SUM: usize = HEAD + 72;
const ADDRESSES: usize = 40;
const OPEN_FILE: usize = HEAD + 40 + ADDRESSES + 16;
const RETRANSMIT: usize = HEAD + ADDRESSES + 16;
const URING_OP: usize = HEAD + 40;
const AIO: usize = HEAD + 24;

/// Reads what the programs hand over at once: a record, or calls and stays of a thread that came together.
pub fn read<'a>(bytes: &'a [u8], mut each: impl FnMut(Record<'a>)) {
    let Some(head) = bytes.get(..HEAD).map(|h| head(Fields(h))) else { return };
    if Fields(bytes).u32(0) != TOGETHER {
        parse(bytes).into_iter().for_each(each);
        return;
    }
    let mut rest = bytes.get(HEAD..).unwrap_or_default();
    for _ in 0..head.ts as u32 {
        let Some((record, size)) = entry(head, rest) else { return };
        each(record);
        rest = rest.get(size..).unwrap_or_default();
    }
}

/// A call or a stay, and its size.
#[inline]
fn entry(head: Head, bytes: &[u8]) -> Option<(Record<'_>, usize)> {
    match Fields(bytes).u16(0) {
        0 => {
            let f = Fields(bytes.get(..BRIEF_CALL)?);
            Some((Record::Call(Head { ts: f.u64(8), ..head }, brief_call(f)), BRIEF_CALL))
        }
        1 => {
            let f = Fields(bytes.get(..WHOLE_CALL)?);
            Some((Record::Call(Head { ts: f.u64(8), ..head }, whole_call(f)), WHOLE_CALL))
        }
        2 => {
            let f = Fields(bytes.get(..STAY)?);
            let (slept_in, size) = match f.u16(2) {
                AS_BEFORE => (SleptIn::AsBefore, STAY),
                0 => (SleptIn::Functions(&[]), STAY),
                frames => {
                    let functions = bytes.get(STAY..STAY_WITH_FUNCTIONS)?.get(..8 * usize::from(frames))?;
                    (SleptIn::Functions(functions), STAY_WITH_FUNCTIONS)
                }
            };
            let head = Head { ts: f.u64(8), cpu: f.u16(44).into(), ..head };
            Some((Record::OffCpu(head, off_cpu(f), slept_in), size))
        }
        _ => None,
    }
}

#[inline]
fn head(h: Fields<'_>) -> Head {
    Head { cpu: h.u32(4), tid: h.u32(8), thread: h.u32(12), ts: h.u64(16) }
}

/// Reads a record; None when it is none of these.
fn parse(bytes: &[u8]) -> Option<Record<'_>> {
    let h = Fields(bytes.get(..HEAD)?);
    let head = head(h);
    let origin = match h.u32(0) {
        1 => Origin::Begin,
        2 => Origin::Fork,
        3 => Origin::Exec,
        4 => return Some(Record::End(head, end(Fields(bytes.get(..END)?)))),
        8 => {
            let f = Fields(bytes.get(..STACK)?);
            let kernel = bytes.get(STACK_FRAMES..STACK)?.get(..8 * f.u32(HEAD + 52) as usize)?;
            let user = bytes.get(STACK..)?.get(..f.u32(HEAD + 56) as usize)?;
            return Some(Record::Stack(head, stack(f)?, kernel, user));
        }
        9 => return Some(Record::BlockIo(head, block_io(bytes.get(..BLOCK_IO)?))),
        11 => {
            let f = Fields(bytes.get(..OPEN_FILE)?);
            let names = bytes.get(OPEN_FILE..)?.get(..f.u32(OPEN_FILE - 8) as usize)?;
            return Some(Record::OpenFile(head, open_file(f), names));
        }
        10 => return Some(Record::CallSum(head, call_sum(Fields(bytes.get(..CALL_SUM)?)))),
        12 => return Some(Record::UringOp(head, uring_op(Fields(bytes.get(..URING_OP)?)))),
        13 => return Some(Record::Retransmit(head, retransmit(Fields(bytes.get(..RETRANSMIT)?)))),
        16 => return Some(Record::Aio(head, aio(Fields(bytes.get(..AIO)?)))),
        14 => Origin::Renamed,
        15 => Origin::Waker,
        _ => return None,
    };
    let f = Fields(bytes.get(..NAMED)?);
    let comm = comm(f.0);
    let (tgid, other_tid, start_ns) = (f.u32(HEAD), f.u32(HEAD + 4), f.u64(HEAD + 8));
    Some(Record::Named(head, Named { origin, tgid, other_tid, start_ns, comm }))
}

/// The name of a task, which is what a record of 16 bytes and more ends with.
fn comm(record: &[u8]) -> String {
    let name = record.last_chunk::<16>().into_iter().flatten().copied().take_while(|b| *b != 0);
    String::from_utf8_lossy(&name.collect::<Vec<_>>()).into_owned()
}

/// Bytes long enough for every field that is asked for.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    #[inline]
    fn u32(&self, at: usize) -> u32 {
        self.0.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u32::from_ne_bytes(*b))
    }

    fn u16(&self, at: usize) -> u16 {
        self.0.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u16::from_ne_bytes(*b))
    }

    fn bytes16(&self, at: usize) -> [u8; 16] {
        self.0.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or_default()
    }

    #[inline]
    fn u64(&self, at: usize) -> u64 {
        self.0.get(at..).and_then(|b| b.first_chunk()).map_or(0, |b| u64::from_ne_bytes(*b))
    }
}

#[inline]
fn brief_call(f: Fields<'_>) -> Call {
    Call {
        duration_ns: f.u32(4).into(),
        ret: i64::from(f.u32(24) as i32),
        args: [f.u32(28).into(), f.u64(16), f.u32(32).into(), 0, 0, 0],
        sleep_ns: 0,
        runq_ns: 0,
        unknown_ns: 0,
        sleeps: 0,
        nr: f.u16(2),
        partial: false,
        file_id: f.u32(36),
    }
}

#[inline]
fn whole_call(f: Fields<'_>) -> Call {
    Call {
        duration_ns: f.u64(16),
        ret: f.u64(24) as i64,
        args: std::array::from_fn(|i| f.u64(32 + 8 * i)),
        sleep_ns: f.u64(80),
        runq_ns: f.u64(88),
        unknown_ns: f.u64(96),
        sleeps: f.u32(4),
        nr: f.u16(2),
        partial: f.u32(108) != 0,
        file_id: f.u32(104),
    }
}

#[inline]
fn off_cpu(f: Fields<'_>) -> OffCpu {
    OffCpu {
        duration_ns: f.u64(16),
        sleep_ns: f.u64(24),
        state: f.u32(4),
        waker_tid: f.u32(32),
        nr: f.u32(36) as i32,
        before_tid: f.u32(40),
        open: f.u16(46) != 0,
    }
}

fn stack(f: Fields<'_>) -> Option<Stack> {
    let why = match f.u32(HEAD) {
        1 => Why::OnCpu,
        2 => Why::Asleep,
        3 => Why::Failed,
        _ => return None,
    };
    Some(Stack {
        why,
        tgid: f.u32(HEAD + 4),
        nr: f.u32(HEAD + 8) as i32,
        error: f.u32(HEAD + 12),
        weight: f.u64(HEAD + 16),
        ip: f.u64(HEAD + 24),
        sp: f.u64(HEAD + 32),
        bp: f.u64(HEAD + 40),
        waker_tid: f.u32(HEAD + 48),
    })
}

fn open_file(f: Fields<'_>) -> OpenFile {
    OpenFile {
        inode: f.u64(HEAD),
        magic: f.u64(HEAD + 8),
        file_id: f.u32(HEAD + 16),
        tgid: f.u32(HEAD + 20),
        device: f.u32(HEAD + 24),
        mode: f.u32(HEAD + 28),
        flags: f.u32(HEAD + 32),
        nlink: f.u32(HEAD + 36),
        at: addresses(f, HEAD + 40),
        socket_type: f.u16(HEAD + 40 + ADDRESSES),
        protocol: f.u16(HEAD + 42 + ADDRESSES),
        whole: f.u32(HEAD + 44 + ADDRESSES) != 0,
    }
}

fn addresses(f: Fields<'_>, at: usize) -> Addresses {
    Addresses {
        family: f.u16(at),
        local_port: f.u16(at + 2),
        remote_port: u16::from_be(f.u16(at + 4)),
        local: f.bytes16(at + 8),
        remote: f.bytes16(at + 24),
    }
}

fn retransmit(f: Fields<'_>) -> Retransmit {
    Retransmit {
        at: addresses(f, HEAD),
        file_id: f.u32(HEAD + ADDRESSES),
        bytes: f.u32(HEAD + ADDRESSES + 4),
        state: f.u32(HEAD + ADDRESSES + 8) as u8,
    }
}

fn uring_op(f: Fields<'_>) -> UringOp {
    UringOp {
        duration_ns: f.u64(HEAD),
        result: f.u32(HEAD + 8) as i32,
        opcode: f.u32(HEAD + 12),
        file_id: f.u32(HEAD + 16),
        by_worker: f.u32(HEAD + 20) != 0,
        bytes: f.u64(HEAD + 24),
        place: f.u64(HEAD + 32) as i64,
    }
}

fn aio(f: Fields<'_>) -> Aio {
    Aio { bytes: f.u64(HEAD), place: f.u64(HEAD + 8) as i64, opcode: f.u32(HEAD + 16), file_id: f.u32(HEAD + 20) }
}

fn call_sum(f: Fields<'_>) -> CallSum {
    let n = |i: usize| f.u64(HEAD + 8 * i);
    let kind = f.u32(HEAD + 64);
    CallSum {
        since: n(0),
        duration_ns: n(1),
        sleep_ns: n(2),
        runq_ns: n(3),
        unknown_ns: n(4),
        longest_ns: n(5),
        calls: n(6),
        sleeps: n(7),
        nr: kind as u16,
        error: (kind >> 16) as u16,
    }
}

fn block_io(bytes: &[u8]) -> BlockIo {
    let f = Fields(bytes);
    BlockIo {
        sector: f.u64(HEAD),
        queue_ns: f.u64(HEAD + 8),
        service_ns: f.u64(HEAD + 16),
        bytes: f.u32(HEAD + 24),
        error: f.u32(HEAD + 28),
        device: f.u32(HEAD + 32),
        flags: f.u32(HEAD + 36),
        comm: comm(bytes),
    }
}

fn end(f: Fields<'_>) -> End {
    let n = |i: usize| f.u64(HEAD + 8 + 8 * i);
    let totals = Totals {
        since: n(0),
        user_ns: n(1),
        system_ns: n(2),
        runq_preempt_ns: n(3),
        runq_wake_ns: n(4),
        sleep_ns: n(5),
        sleep_d_ns: n(6),
        stopped_ns: n(7),
        unknown_ns: n(8),
        calls: n(9),
        failed_calls: n(10),
        sleeps: n(11),
        preemptions: n(12),
        migrations: n(13),
        minor_faults: n(14),
        major_faults: n(15),
        lost: n(16),
        stat_run_ns: n(17),
        stat_runq_ns: n(18),
        stat_slices: n(19),
        interrupt_ns: Some(n(20)),
        scheduled: Some(Scheduled { node_moves: n(21), policy: n(22) as u32, priority: (n(22) >> 32) as i32 }),
    };
    End { tgid: f.u32(HEAD), exited: f.u32(HEAD + 4) != 0, counted: true, totals }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_shorter_than_their_kind_are_refused() {
        for kind in 0..17u32 {
            for len in 0..300 {
                let mut bytes = vec![0xff; len];
                bytes.iter_mut().zip(kind.to_ne_bytes()).for_each(|(to, from)| *to = from);
                let size = match kind {
                    1..=3 | 14 | 15 => NAMED,
                    4 => END,
                    9 => BLOCK_IO,
                    10 => CALL_SUM,
                    12 => URING_OP,
                    13 => RETRANSMIT,
                    16 => AIO,
                    _ => usize::MAX, // no such kind, or more frames than there are bytes
                };
                assert_eq!(parse(&bytes).is_some(), len >= size, "kind {kind}, {len} bytes");
            }
        }
    }

    #[test]
    fn a_stack_is_as_long_as_it_says() {
        let mut bytes = Vec::new();
        [8u32, 1, 4711, 0].iter().for_each(|v| bytes.extend(v.to_ne_bytes()));
        bytes.extend(100u64.to_ne_bytes());
        [3u32, 4710, 64, 2].iter().for_each(|v| bytes.extend(v.to_ne_bytes()));
        [1u64, 7, 8, 9].iter().for_each(|v| bytes.extend(v.to_ne_bytes()));
        [5u32, 2, 3, 0].iter().for_each(|v| bytes.extend(v.to_ne_bytes()));
        (1..=32u64).for_each(|v| bytes.extend(v.to_ne_bytes()));
        bytes.extend([1, 2, 3]);
        let head = Head { cpu: 1, tid: 4711, thread: 0, ts: 100 };
        let stack =
            Stack { why: Why::Failed, tgid: 4710, nr: 64, error: 2, weight: 1, ip: 7, sp: 8, bp: 9, waker_tid: 5 };
        let kernel: Vec<u8> = [1u64, 2].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert_eq!(parse(&bytes), Some(Record::Stack(head, stack, &kernel, &[1, 2, 3])));
        for len in 0..bytes.len() {
            assert_eq!(parse(&bytes[..len]), None);
        }
    }

    /// What came together, with a head that counts so many.
    fn together(count: u64, entries: &[u8]) -> Vec<u8> {
        let mut bytes: Vec<u8> = [5u32, 1, 4711, 9].iter().flat_map(|v| v.to_ne_bytes()).collect();
        bytes.extend(count.to_ne_bytes());
        bytes.extend(entries);
        bytes
    }

    #[test]
    fn calls_and_stays_are_read_field_by_field() {
        let (mut brief, mut whole, mut stay) = (Vec::new(), Vec::new(), Vec::new());
        brief.extend([0u16, 64].iter().flat_map(|v| v.to_ne_bytes()));
        brief.extend(50u32.to_ne_bytes());
        brief.extend([100u64, 1 << 40].iter().flat_map(|v| v.to_ne_bytes()));
        brief.extend([-2i32 as u32, 1, 3, 77].iter().flat_map(|v| v.to_ne_bytes()));
        whole.extend([1u16, 65].iter().flat_map(|v| v.to_ne_bytes()));
        whole.extend(2u32.to_ne_bytes());
        let words = [200u64, 51, -3i64 as u64, 1, 2, 3, 4, 5, 6, 30, 7, 8];
        words.iter().for_each(|v| whole.extend(v.to_ne_bytes()));
        whole.extend([78u32, 1].iter().flat_map(|v| v.to_ne_bytes()));
        stay.extend([2u16, 2].iter().flat_map(|v| v.to_ne_bytes()));
        stay.extend(1u32.to_ne_bytes());
        [300u64, 52, 31].iter().for_each(|v| stay.extend(v.to_ne_bytes()));
        stay.extend([4710u32, -1i32 as u32, 4709].iter().flat_map(|v| v.to_ne_bytes()));
        stay.extend([3u16, 1].iter().flat_map(|v| v.to_ne_bytes()));
        let mut as_before = stay.clone();
        as_before[2..4].copy_from_slice(&AS_BEFORE.to_ne_bytes());
        let functions: Vec<u8> = (1..=12u64).flat_map(|v| v.to_ne_bytes()).collect();
        stay.extend(&functions);
        let bytes = together(4, &[brief, whole, stay, as_before].concat());

        let head = |ts, cpu| Head { cpu, tid: 4711, thread: 9, ts };
        let short = Call {
            duration_ns: 50,
            ret: -2,
            args: [1, 1 << 40, 3, 0, 0, 0],
            sleep_ns: 0,
            runq_ns: 0,
            unknown_ns: 0,
            sleeps: 0,
            nr: 64,
            partial: false,
            file_id: 77,
        };
        let long = Call {
            duration_ns: 51,
            ret: -3,
            args: [1, 2, 3, 4, 5, 6],
            sleep_ns: 30,
            runq_ns: 7,
            unknown_ns: 8,
            sleeps: 2,
            nr: 65,
            partial: true,
            file_id: 78,
        };
        let off =
            OffCpu { duration_ns: 52, sleep_ns: 31, state: 1, waker_tid: 4710, nr: -1, before_tid: 4709, open: true };
        let all = [
            Record::Call(head(100, 1), short),
            Record::Call(head(200, 1), long),
            Record::OffCpu(head(300, 3), off, SleptIn::Functions(&functions[..16])),
            Record::OffCpu(head(300, 3), off, SleptIn::AsBefore),
        ];
        let ends = [24, 64, 176, 320, 368]; // of the head and of each of them
        for len in 0..=bytes.len() {
            let mut found = Vec::new();
            read(&bytes[..len], |record| found.push(record));
            let whole = ends.iter().filter(|end| **end <= len).count().saturating_sub(1);
            assert_eq!(found, all[..whole], "{len} bytes");
        }
    }
}
