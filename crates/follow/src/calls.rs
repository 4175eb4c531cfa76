//! The calls that are followed, and where each has its path, its descriptor or its address.

use libc as c;

/// What the arguments of a call are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    /// A path in this argument.
    Path(usize),
    /// A descriptor of a folder, and a path in the argument behind it.
    At(usize),
    /// A descriptor.
    Fd(usize),
    /// A descriptor; an address and its length in these arguments.
    Address(usize, usize),
    /// Nothing that has a name.
    Nothing,
}

/// How a call is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    Exec,
    Open,
    /// Asks only: that a file is not there is what it wanted to know.
    Ask,
    Write,
    /// Puts a file in memory; followed only where it is to be executed, or where limits matter.
    Map,
    Fork,
    Net,
    Kill,
    /// A lock on a file that is asked for without waiting; a descriptor that is copied.
    Lock,
    /// A limit of the process is set.
    Limit,
    /// A filter of its own is set: from then on another filter may answer calls before ours.
    Filter,
    Other,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) nr: i64,
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    pub(crate) about: About,
}

macro_rules! calls {
    ($($nr:ident $name:literal $class:ident $about:expr;)*) => {
        pub(crate) static CALLS: &[Call] = &[$(Call { nr: c::$nr, name: $name, class: Class::$class, about: $about }),*];
    };
}

use About::*;
calls! {
    SYS_execve "execve" Exec Path(0);
    SYS_execveat "execveat" Exec At(0);
    SYS_open "open" Open Path(0);
    SYS_openat "openat" Open At(0);
    SYS_openat2 "openat2" Open At(0);
    SYS_creat "creat" Open Path(0);
    SYS_access "access" Ask Path(0);
    SYS_faccessat "faccessat" Ask At(0);
    SYS_faccessat2 "faccessat2" Ask At(0);
    SYS_stat "stat" Ask Path(0);
    SYS_lstat "lstat" Ask Path(0);
    SYS_newfstatat "newfstatat" Ask At(0);
    SYS_statx "statx" Ask At(0);
    SYS_chdir "chdir" Other Path(0);
    SYS_mkdir "mkdir" Other Path(0);
    SYS_mkdirat "mkdirat" Other At(0);
    SYS_rename "rename" Other Path(1);
    SYS_renameat "renameat" Other At(2);
    SYS_renameat2 "renameat2" Other At(2);
    SYS_unlink "unlink" Other Path(0);
    SYS_unlinkat "unlinkat" Other At(0);
    SYS_rmdir "rmdir" Other Path(0);
    SYS_link "link" Other Path(1);
    SYS_linkat "linkat" Other At(2);
    SYS_symlink "symlink" Other Path(1);
    SYS_symlinkat "symlinkat" Other At(1);
    SYS_chmod "chmod" Other Path(0);
    SYS_fchmodat "fchmodat" Other At(0);
    SYS_chown "chown" Other Path(0);
    SYS_lchown "lchown" Other Path(0);
    SYS_fchmod "fchmod" Other Fd(0);
    SYS_fchown "fchown" Other Fd(0);
    SYS_mknod "mknod" Other Path(0);
    SYS_mknodat "mknodat" Other At(0);
    SYS_utimensat "utimensat" Other At(0);
    SYS_fchownat "fchownat" Other At(0);
    SYS_truncate "truncate" Write Path(0);
    SYS_ftruncate "ftruncate" Write Fd(0);
    SYS_fallocate "fallocate" Write Fd(0);
    SYS_write "write" Write Fd(0);
    SYS_pwrite64 "pwrite64" Write Fd(0);
    SYS_writev "writev" Write Fd(0);
    SYS_pwritev "pwritev" Write Fd(0);
    SYS_copy_file_range "copy_file_range" Write Fd(2);
    SYS_sendfile "sendfile" Write Fd(0);
    SYS_fsync "fsync" Write Fd(0);
    SYS_fdatasync "fdatasync" Write Fd(0);
    SYS_mmap "mmap" Map Fd(4);
    SYS_mprotect "mprotect" Map Nothing;
    SYS_mlock "mlock" Other Nothing;
    SYS_mlock2 "mlock2" Other Nothing;
    SYS_mlockall "mlockall" Other Nothing;
    SYS_clone "clone" Fork Nothing;
    SYS_clone3 "clone3" Fork Nothing;
    SYS_fork "fork" Fork Nothing;
    SYS_vfork "vfork" Fork Nothing;
    SYS_socket "socket" Other Nothing;
    SYS_socketpair "socketpair" Other Nothing;
    SYS_pipe "pipe" Other Nothing;
    SYS_pipe2 "pipe2" Other Nothing;
    SYS_dup "dup" Other Fd(0);
    SYS_epoll_create1 "epoll_create1" Other Nothing;
    SYS_eventfd2 "eventfd2" Other Nothing;
    SYS_memfd_create "memfd_create" Other Nothing;
    SYS_accept "accept" Other Fd(0);
    SYS_accept4 "accept4" Other Fd(0);
    SYS_connect "connect" Net Address(1, 2);
    SYS_bind "bind" Net Address(1, 2);
    SYS_sendto "sendto" Net Fd(0);
    SYS_sendmsg "sendmsg" Net Fd(0);
    SYS_sendmmsg "sendmmsg" Net Fd(0);
    SYS_recvfrom "recvfrom" Net Fd(0);
    SYS_getsockopt "getsockopt" Net Fd(0);
    SYS_flock "flock" Lock Fd(0);
    SYS_fcntl "fcntl" Lock Fd(0);
    SYS_kill "kill" Kill Nothing;
    SYS_tgkill "tgkill" Kill Nothing;
    SYS_pidfd_send_signal "pidfd_send_signal" Kill Nothing;
    SYS_mount "mount" Other Path(1);
    SYS_umount2 "umount2" Other Path(0);
    SYS_chroot "chroot" Other Path(0);
    SYS_pivot_root "pivot_root" Other Path(0);
    SYS_unshare "unshare" Other Nothing;
    SYS_setns "setns" Other Fd(0);
    SYS_setuid "setuid" Other Nothing;
    SYS_setgid "setgid" Other Nothing;
    SYS_setresuid "setresuid" Other Nothing;
    SYS_setresgid "setresgid" Other Nothing;
    SYS_setgroups "setgroups" Other Nothing;
    SYS_setrlimit "setrlimit" Limit Nothing;
    SYS_prlimit64 "prlimit64" Limit Nothing;
    SYS_ptrace "ptrace" Other Nothing;
    SYS_bpf "bpf" Other Nothing;
    SYS_perf_event_open "perf_event_open" Other Nothing;
    SYS_io_uring_setup "io_uring_setup" Other Nothing;
    SYS_keyctl "keyctl" Other Nothing;
    SYS_personality "personality" Other Nothing;
    SYS_sched_setscheduler "sched_setscheduler" Other Nothing;
    SYS_setpriority "setpriority" Other Nothing;
    SYS_sethostname "sethostname" Other Nothing;
    SYS_settimeofday "settimeofday" Other Nothing;
    SYS_clock_settime "clock_settime" Other Nothing;
    SYS_reboot "reboot" Other Nothing;
    SYS_init_module "init_module" Other Nothing;
    SYS_finit_module "finit_module" Other Fd(0);
    SYS_shmget "shmget" Other Nothing;
    SYS_shmat "shmat" Other Nothing;
    SYS_semget "semget" Other Nothing;
    SYS_msgget "msgget" Other Nothing;
    SYS_io_setup "io_setup" Other Nothing;
    SYS_inotify_init "inotify_init" Other Nothing;
    SYS_inotify_init1 "inotify_init1" Other Nothing;
    SYS_inotify_add_watch "inotify_add_watch" Other Path(1);
    SYS_seccomp "seccomp" Filter Nothing;
    SYS_prctl "prctl" Filter Nothing;
}

pub(crate) fn find(nr: i64) -> Option<&'static Call> {
    CALLS.iter().find(|call| call.nr == nr)
}

/// The name of any call, as far as it is followed; of others the number.
pub(crate) fn name_of(nr: i64) -> String {
    find(nr).map_or_else(|| format!("number {nr}"), |call| call.name.to_string())
}

/// How much a failure may mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Part of the normal life of the call.
    Nothing,
    /// Means something only if the process then speaks of it.
    IfSaid,
    Kept,
}

pub(crate) fn weight_of(call: &Call, errno: i32) -> Weight {
    match errno {
        c::EAGAIN if matches!(call.class, Class::Fork | Class::Lock) || call.nr == c::SYS_io_setup => Weight::Kept,
        // Larger than kernel.shmmax, or more semaphores than a set may have.
        c::EINVAL if [c::SYS_shmget, c::SYS_semget].contains(&call.nr) => Weight::Kept,
        c::EAGAIN | c::EINTR | c::EINPROGRESS | c::EALREADY => Weight::Nothing,
        512..=530 => Weight::Nothing, // ERESTARTSYS and its kin: the call is made again
        _ if matches!(call.class, Class::Filter | Class::Kill) => Weight::Nothing,
        c::EEXIST
        | c::EINVAL
        | c::ECHILD
        | c::ESRCH
        | c::ENOTTY
        | c::EISCONN
        | c::EPIPE
        | c::EOPNOTSUPP
        | c::EBADF
        | c::EAFNOSUPPORT
        | c::EDESTADDRREQ
        | c::ENOTEMPTY
        | c::ENODATA => Weight::IfSaid,
        c::ENOENT | c::ENOTDIR if matches!(call.class, Class::Open | Class::Ask) => Weight::IfSaid,
        _ => Weight::Kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_stands_twice() {
        let mut numbers: Vec<i64> = CALLS.iter().map(|call| call.nr).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), CALLS.len());
        assert!(CALLS.len() < 200, "a jump of the filter spans at most 255 instructions");
    }
}
