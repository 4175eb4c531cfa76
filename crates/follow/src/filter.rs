//! The seccomp filter: calls of the table stop for the follower, all others run on.
//!
//! Another filter that refuses a call goes before ours, and the call then does not stop. Processes with such a filter are therefore followed
//! call by call (`follower`).

use crate::calls::{self, CALLS};
use libc::{sock_filter, sock_fprog, SYS_fcntl, SYS_mprotect, SYS_newfstatat, SYS_prlimit64};

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const HAS_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;
/// Offsets in struct seccomp_data; arguments are 8 bytes, the low half first.
const NR: u32 = 0;
const ARCH: u32 = 4;
/// Commands of fcntl that stop: a lock that is asked for without waiting, a descriptor that is copied. F_OFD_SETLK is 37.
const COMMANDS: [u32; 4] = [libc::F_SETLK as u32, 37, libc::F_DUPFD as u32, libc::F_DUPFD_CLOEXEC as u32];
/// Calls whose arguments decide.
pub(crate) const PARTLY: [i64; 4] = [SYS_newfstatat, SYS_mprotect, SYS_fcntl, SYS_prlimit64];

const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

const fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The program. It is short: one comparison for each call, and a look at the arguments of those that are frequent and mostly harmless.
pub(crate) fn program() -> Vec<sock_filter> {
    let allow = statement(RETURN, libc::SECCOMP_RET_ALLOW);
    let stop = statement(RETURN, libc::SECCOMP_RET_TRACE);
    let mut out = vec![
        statement(LOAD, ARCH),
        jump(EQUAL, AUDIT_ARCH_X86_64, 1, 0),
        allow,
        statement(LOAD, NR),
        // Of a descriptor alone (fstat): cannot fail for a reason of interest.
        jump(EQUAL, SYS_newfstatat as u32, 0, 4),
        statement(LOAD, argument(3)),
        jump(HAS_BIT, libc::AT_EMPTY_PATH as u32, 0, 1),
        allow,
        stop,
        // Memory that is made executable.
        jump(EQUAL, SYS_mprotect as u32, 0, 4),
        statement(LOAD, argument(2)),
        jump(HAS_BIT, libc::PROT_EXEC as u32, 1, 0),
        allow,
        stop,
        // A limit that is only asked for.
        jump(EQUAL, SYS_prlimit64 as u32, 0, 4),
        statement(LOAD, argument(2)),
        jump(EQUAL, 0, 0, 1),
        allow,
        stop,
        jump(EQUAL, SYS_fcntl as u32, 0, 2 + 2 * COMMANDS.len() as u8),
        statement(LOAD, argument(1)),
    ];
    for command in COMMANDS {
        out.push(jump(EQUAL, command, 0, 1));
        out.push(stop);
    }
    out.push(allow);
    for call in CALLS.iter().filter(|call| !PARTLY.contains(&call.nr)) {
        out.push(jump(EQUAL, call.nr as u32, 0, 1));
        out.push(stop);
    }
    debug_assert!(PARTLY.iter().all(|nr| calls::find(*nr).is_some()));
    out.push(allow);
    out
}

/// Sets the filter for this thread and all that it starts. Without the right to do so for programs with rights of their own (setuid), it
/// gives up such rights first. False if the kernel refuses; errno says why. Allocates nothing: it runs between fork and exec.
pub(crate) fn set(program: &[sock_filter]) -> bool {
    let filter = sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel copies the program, which is as long as it says.
    unsafe {
        let set =
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter as *const sock_fprog, 0, 0) == 0;
        set() || (libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && set())
    }
}
