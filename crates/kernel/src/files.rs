//! What file descriptors stand for, with names for people: paths, addresses.

use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use leadline_capture::Value;
use leadline_clockwork::{OpenTables, Row};
use leadline_errors::Error;

use crate::record::{Addresses, Head, OpenFile};

/// Calls whose first argument is a descriptor.
pub const CALLS_WITH_FILE: &[&str] = &[
    "read",
    "write",
    "pread64",
    "pwrite64",
    "readv",
    "writev",
    "preadv",
    "pwritev",
    "preadv2",
    "pwritev2",
    "close",
    "fsync",
    "fdatasync",
    "sync_file_range",
    "syncfs",
    "fallocate",
    "ftruncate",
    "fadvise64",
    "readahead",
    "lseek",
    "fstat",
    "getdents",
    "getdents64",
    "ioctl",
    "fcntl",
    "flock",
    "sendto",
    "recvfrom",
    "sendmsg",
    "recvmsg",
    "sendmmsg",
    "recvmmsg",
    "sendfile",
    "copy_file_range",
    "splice",
    "tee",
    "vmsplice",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_ctl",
    "connect",
    "accept",
    "accept4",
    "bind",
    "listen",
    "shutdown",
    "getsockname",
    "getpeername",
    "setsockopt",
    "getsockopt",
    "fchmod",
    "fchown",
    "fsetxattr",
    "fgetxattr",
    "fchdir",
    "fstatfs",
    "timerfd_settime",
    "io_uring_enter",
    // Of 32 bit alone.
    "_llseek",
    "fcntl64",
    "fstat64",
    "fstatfs64",
    "ftruncate64",
    "fchown32",
];

/// Calls that give a descriptor of a new file.
pub const CALLS_THAT_OPEN: &[&str] = &[
    "open",
    "openat",
    "openat2",
    "creat",
    "socket",
    "accept",
    "accept4",
    "memfd_create",
    "epoll_create",
    "epoll_create1",
    "eventfd",
    "eventfd2",
    "timerfd_create",
    "signalfd",
    "signalfd4",
    "inotify_init",
    "inotify_init1",
    "io_uring_setup",
    "pidfd_open",
    "perf_event_open",
];

/// Calls after which each descriptor of a process stands for what it did before. Of others, that is not assumed.
pub const CALLS_THAT_KEEP: &[&str] = &[
    "access",
    "bind",
    "brk",
    "clock_gettime",
    "clock_nanosleep",
    "connect",
    "copy_file_range",
    "epoll_ctl",
    "epoll_pwait",
    "epoll_wait",
    "fadvise64",
    "fallocate",
    "fdatasync",
    "flock",
    "fstat",
    "fsync",
    "ftruncate",
    "futex",
    "getdents64",
    "getpeername",
    "getpid",
    "getppid",
    "getrusage",
    "getsockname",
    "getsockopt",
    "gettid",
    "gettimeofday",
    "kill",
    "lseek",
    "lstat",
    "madvise",
    "mmap",
    "mprotect",
    "munmap",
    "nanosleep",
    "newfstatat",
    "poll",
    "ppoll",
    "pread64",
    "preadv",
    "preadv2",
    "pselect6",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readahead",
    "readv",
    "recvfrom",
    "rt_sigaction",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sched_yield",
    "select",
    "semget",
    "semop",
    "semtimedop",
    "sendfile",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "setitimer",
    "setsockopt",
    "shutdown",
    "stat",
    "sync_file_range",
    "syncfs",
    "tgkill",
    "write",
    "writev",
];

const SOCKETS: u64 = 0x534f_434b;
const PIPES: u64 = 0x5049_5045;
const ANONYMOUS: u64 = 0x0904_1934;
const AF_UNIX: u16 = 1;

/// Open files until they are written.
#[derive(Default)]
pub struct Files {
    new: Vec<FileRow>,
    /// Paths of Unix sockets by inode, as of the last look.
    unix: HashMap<u64, String>,
}

struct FileRow {
    ts: i64,
    file: OpenFile,
    kind: &'static str,
    name: String,
    local: Option<SocketAddr>,
    remote: Option<SocketAddr>,
}

impl Files {
    /// Something was opened, seen for the first time, or got an address.
    pub fn push(&mut self, head: Head, file: &OpenFile, names: &[u8]) {
        let kind = kind_of(file);
        let (local, remote) = (address(&file.at, true), address(&file.at, false));
        let name = match kind {
            "socket" => self.name_of_socket(file, local, remote),
            "pipe" if names.iter().all(|b| *b == 0) => format!("pipe:[{}]", file.inode),
            "anonymous" => path(names, true).trim_start_matches('/').to_string(),
            _ => path(names, file.whole),
        };
        self.new.push(FileRow { ts: head.ts as i64, file: *file, kind, name, local, remote });
    }

    fn name_of_socket(&mut self, file: &OpenFile, local: Option<SocketAddr>, remote: Option<SocketAddr>) -> String {
        let protocol = match (file.at.family, file.protocol, file.socket_type) {
            (AF_UNIX, ..) => {
                if !self.unix.contains_key(&file.inode) {
                    self.unix = unix_sockets(&std::fs::read_to_string("/proc/net/unix").unwrap_or_default());
                }
                let path = self.unix.get(&file.inode).map_or("", String::as_str);
                return if path.is_empty() { format!("unix:[{}]", file.inode) } else { format!("unix {path}") };
            }
            (_, 6, _) => "tcp",
            (_, 17, _) => "udp",
            (16, ..) => "netlink",
            _ => "socket",
        };
        match (local, remote) {
            (Some(local), Some(remote)) => format!("{protocol} {local} to {remote}"),
            (Some(local), None) => format!("{protocol} {local}"),
            _ => format!("{protocol}:[{}]", file.inode),
        }
    }

    /// Writes those that are new.
    pub fn write(&mut self, tables: &mut OpenTables) -> Result<(), Error> {
        self.new.sort_by_key(|row| row.ts);
        tables.write_rows("open_file", self.new.iter().map(row))?;
        self.new.clear();
        Ok(())
    }
}

fn row(r: &FileRow) -> Row<'_> {
    let f = &r.file;
    let port = |address: Option<SocketAddr>| address.map_or(Value::Null, |a| Value::Int(a.port().into()));
    vec![
        Value::Int(r.ts),
        Value::Int(f.file_id.into()),
        Value::Int(f.tgid.into()),
        Value::Text(r.kind),
        Value::Text(&r.name),
        Value::Int((f.device >> 20).into()),
        Value::Int((f.device & 0xf_ffff).into()),
        Value::Int(f.inode as i64),
        Value::Int(f.flags.into()),
        Value::Bool(f.nlink == 0 && r.kind == "file"),
        port(r.local),
        port(r.remote),
    ]
}

fn kind_of(file: &OpenFile) -> &'static str {
    match (file.magic, file.mode & 0xf000) {
        (SOCKETS, _) | (_, 0xc000) => "socket",
        (PIPES, _) | (_, 0x1000) => "pipe",
        (ANONYMOUS, _) => "anonymous",
        (_, 0x4000) => "directory",
        (_, 0x2000) => "character device",
        (_, 0x6000) => "block device",
        _ => "file",
    }
}

/// From the names of a path, the last one first; `...` where it was too long to follow.
fn path(names: &[u8], whole: bool) -> String {
    let mut parts: Vec<_> =
        names.split(|b| *b == 0).filter(|part| !part.is_empty()).map(String::from_utf8_lossy).collect();
    parts.reverse();
    format!("{}/{}", if whole { "" } else { "..." }, parts.join("/"))
}

/// The local or the remote address of a socket of the internet; None when it has none yet.
pub fn address(at: &Addresses, local: bool) -> Option<SocketAddr> {
    let (bytes, port) = if local { (at.local, at.local_port) } else { (at.remote, at.remote_port) };
    let ip = match i32::from(at.family) {
        libc::AF_INET => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        libc::AF_INET6 => Ipv6Addr::from(bytes).to_canonical(),
        _ => return None,
    };
    (port != 0).then_some(SocketAddr::new(ip, port))
}

/// Paths by inode, from /proc/net/unix.
fn unix_sockets(text: &str) -> HashMap<u64, String> {
    let fields = text.lines().skip(1).map(|line| line.split_whitespace().skip(6));
    fields.filter_map(|mut f| Some((f.next()?.parse().ok()?, f.next().unwrap_or_default().to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_put_together_from_its_end() {
        assert_eq!(path(b"1259\x005\0base\0data\0", true), "/data/base/5/1259");
        assert_eq!(path(b"1259\x005\0", false), ".../5/1259");
        assert_eq!(path(b"", true), "/");
    }

    #[test]
    fn sockets_of_unix_have_their_paths() {
        let text = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                    0000000000000000: 00000002 00000000 00010000 0001 01 51234 /run/postgresql/.s.PGSQL.5432\n\
                    0000000000000000: 00000003 00000000 00000000 0001 03 51235\n";
        let found = unix_sockets(text);
        assert_eq!(found[&51234], "/run/postgresql/.s.PGSQL.5432");
        assert_eq!(found[&51235], "");
    }

    #[test]
    fn addresses_are_those_of_the_family() {
        let mut file = OpenFile {
            inode: 1,
            magic: SOCKETS,
            file_id: 1,
            tgid: 1,
            device: 0,
            mode: 0xc1ff,
            flags: 0,
            nlink: 1,
            at: Addresses { family: 2, local_port: 5432, ..Addresses::default() },
            socket_type: 1,
            protocol: 6,
            whole: false,
        };
        file.at.local[..4].copy_from_slice(&[127, 0, 0, 1]);
        assert_eq!(address(&file.at, true).map(|a| a.to_string()).as_deref(), Some("127.0.0.1:5432"));
        assert_eq!(address(&file.at, false), None);
        (file.at.family, file.at.local) = (10, Ipv6Addr::LOCALHOST.octets());
        assert_eq!(address(&file.at, true).map(|a| a.to_string()).as_deref(), Some("[::1]:5432"));
        assert_eq!(kind_of(&file), "socket");
    }
}
