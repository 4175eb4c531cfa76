//! The seccomp filter: calls of the table stop for the follower, all others run on.
//!
//! Another filter that refuses a call goes before ours, and the call then does not stop. Processes with such a filter are therefore followed
//! call by call (`follower`).

use crate::calls::{self, CALLS};
use libc::{sock_filter, sock_fprog, SYS_mmap, SYS_mprotect, SYS_newfstatat};

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const HAS_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
const AUDIT_ARCH_X86_64: u32 = 0xC000_003E;
/// Offsets in struct seccomp_data; arguments are 8 bytes, the low half first.
const NR: u32 = 0;
const ARCH: u32 = 4;
const fn argument(n: u32) -> u32 {
    16 + 8 * n
}

const fn statement(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

const fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

/// The program. It is short: one comparison for each call, and a look at the arguments of three that are frequent and mostly harmless.
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
    ];
    for call in CALLS.iter().filter(|call| ![SYS_newfstatat, SYS_mprotect].contains(&call.nr)) {
        out.push(jump(EQUAL, call.nr as u32, 0, 1));
        out.push(stop);
    }
    debug_assert!(calls::find(SYS_mmap).is_some());
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
