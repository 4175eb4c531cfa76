//! The few requests of ptrace that are needed, each with its error.

use std::io;

/// What a stop of a call tells: PTRACE_GET_SYSCALL_INFO, Linux 5.3 and later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    Entry {
        nr: i64,
        args: [u64; 6],
    },
    Filtered {
        nr: i64,
        args: [u64; 6],
    },
    /// The result as the kernel has it: an error is -4095 to -1.
    Exit {
        result: i64,
    },
    None,
}

/// struct ptrace_syscall_info of linux/ptrace.h.
#[repr(C)]
#[derive(Default)]
struct Info {
    op: u8,
    pad: [u8; 3],
    arch: u32,
    instruction_pointer: u64,
    stack_pointer: u64,
    words: [u64; 8],
}

const GET_SYSCALL_INFO: libc::c_uint = 0x420e;

fn request(request: libc::c_uint, tid: i32, address: usize, data: usize) -> io::Result<i64> {
    // SAFETY: each caller passes data that the request expects; a thread that is gone gives ESRCH.
    let done = unsafe { libc::ptrace(request, tid, address, data) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(done)
    }
}

pub(crate) fn seize(tid: i32, options: i32) -> io::Result<()> {
    request(libc::PTRACE_SEIZE, tid, 0, options as usize).map(drop)
}

/// Lets the thread run on; `how` is PTRACE_CONT, PTRACE_SYSCALL or PTRACE_LISTEN. One that is gone is reported by waitpid.
pub(crate) fn resume(how: libc::c_uint, tid: i32, signal: i32) {
    let _ = request(how, tid, 0, signal as usize);
}

pub(crate) fn event_message(tid: i32) -> Option<i32> {
    let mut message: libc::c_ulong = 0;
    request(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message as usize).ok()?;
    i32::try_from(message).ok()
}

/// Code, address or sender of the signal that is about to be delivered.
pub(crate) fn signal_info(tid: i32) -> Option<libc::siginfo_t> {
    // SAFETY: all zeros is a valid siginfo_t.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    request(libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info as usize).ok()?;
    Some(info)
}

pub(crate) fn stack_pointer(tid: i32) -> Option<u64> {
    let mut info = Info::default();
    request(GET_SYSCALL_INFO, tid, size_of::<Info>(), &raw mut info as usize).ok()?;
    Some(info.stack_pointer)
}

pub(crate) fn stop(tid: i32) -> Stop {
    let mut info = Info::default();
    if request(GET_SYSCALL_INFO, tid, size_of::<Info>(), &raw mut info as usize).is_err() {
        return Stop::None;
    }
    let w = info.words;
    let args = [w[1], w[2], w[3], w[4], w[5], w[6]];
    match info.op {
        1 => Stop::Entry { nr: w[0] as i64, args },
        2 => Stop::Exit { result: w[0] as i64 },
        3 => Stop::Filtered { nr: w[0] as i64, args },
        _ => Stop::None,
    }
}
