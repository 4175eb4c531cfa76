//! The tracepoints of the running kernel: their numbers, and where their fields lie, as tracefs says.

use std::io;
use std::path::{Path, PathBuf};

use leadline_errors::{Error, Kind, Result};

/// Where the fields of our tracepoints lie in their records, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Tracepoints {
    pub switch: u16,
    pub waking: u16,
    pub enter: u16,
    pub exit: u16,
    pub common_pid: usize,
    pub prev_pid: usize,
    pub prev_state: usize,
    pub next_pid: usize,
    pub woken_pid: usize,
    pub enter_nr: usize,
    pub args: usize,
    pub exit_nr: usize,
    pub ret: usize,
}

const NAMES: [&str; 4] =
    ["sched/sched_switch", "sched/sched_waking", "raw_syscalls/sys_enter", "raw_syscalls/sys_exit"];
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

impl Tracepoints {
    /// Reads them. Where tracefs is not mounted it is, in a view of the file system that only a thread of ours has for that moment.
    ///
    /// # Errors
    /// Kinds rights and unsupported.
    pub fn read() -> Result<Tracepoints> {
        let mounted = PLACES.iter().map(Path::new).find(|place| place.join("events").exists());
        let texts = mounted.map_or_else(read_from_mount_of_our_own, read_from).map_err(|e| {
            let denied = matches!(e.raw_os_error(), Some(libc::EPERM | libc::EACCES));
            let kind = if denied { Kind::Rights } else { Kind::Unsupported };
            Error::new(kind, "the kernel does not show its tracepoints").detail(format!("tracefs: {e}")).hint(
                if denied {
                    "run as root, or: setcap cap_perfmon,cap_dac_read_search+ep on the Python that runs leadline"
                } else {
                    "boot a kernel with CONFIG_FTRACE_SYSCALLS"
                },
            )
        })?;
        Tracepoints::of(&texts)
            .ok_or_else(|| Error::new(Kind::Unsupported, "the kernel's tracepoints lack fields that are needed"))
    }

    fn of([switch, waking, enter, exit]: &[String; 4]) -> Option<Tracepoints> {
        Some(Tracepoints {
            switch: number(switch)?,
            waking: number(waking)?,
            enter: number(enter)?,
            exit: number(exit)?,
            common_pid: field(switch, "common_pid", 4)?,
            prev_pid: field(switch, "prev_pid", 4)?,
            prev_state: field(switch, "prev_state", 8)?,
            next_pid: field(switch, "next_pid", 4)?,
            woken_pid: field(waking, "pid", 4)?,
            enter_nr: field(enter, "id", 8)?,
            args: field(enter, "args[6]", 48)?,
            exit_nr: field(exit, "id", 8)?,
            ret: field(exit, "ret", 8)?,
        })
    }
}

fn read_from(place: &Path) -> io::Result<[String; 4]> {
    let mut texts = [const { String::new() }; 4];
    for (text, name) in texts.iter_mut().zip(NAMES) {
        *text = std::fs::read_to_string(place.join("events").join(name).join("format"))?;
    }
    Ok(texts)
}

/// Mounts tracefs where only the thread that asks can see it; the mount is gone with the thread.
fn read_from_mount_of_our_own() -> io::Result<[String; 4]> {
    let read = || {
        let place = PathBuf::from("/sys/kernel");
        let check = |outcome: libc::c_int| if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
        // SAFETY: system calls with constant strings. They change what this thread alone sees.
        unsafe {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            let private = libc::MS_REC | libc::MS_PRIVATE;
            check(libc::mount(c"none".as_ptr(), c"/".as_ptr(), std::ptr::null(), private, std::ptr::null()))?;
            let (kind, at) = (c"tracefs".as_ptr(), c"/sys/kernel".as_ptr());
            check(libc::mount(kind, at, kind, libc::MS_RDONLY, std::ptr::null()))?;
        }
        read_from(&place)
    };
    let thread = std::thread::Builder::new().name("leadline-tracefs".into()).spawn(read)?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that reads it ended")))
}

/// The number of a tracepoint.
fn number(format: &str) -> Option<u16> {
    format.lines().find_map(|line| line.strip_prefix("ID: "))?.trim().parse().ok()
}

/// Where a field of so many bytes lies.
fn field(format: &str, name: &str, size: usize) -> Option<usize> {
    format.lines().find_map(|line| {
        let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
        let declared = parts.next()?.rsplit(' ').next()?;
        let mut value = |key| parts.find_map(|part| part.strip_prefix(key)?.parse::<usize>().ok());
        let (offset, found) = (value("offset:")?, value("size:")?);
        (declared == name && found == size).then_some(offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: &str = "name: sched_switch\nID: 372\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\tfield:char prev_comm[16];\toffset:16;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t prev_pid;\toffset:32;\tsize:4;\tsigned:1;\n\nprint fmt: \"prev_comm=%s\"\n";

    #[test]
    fn numbers_and_places_are_read_from_the_format() {
        assert_eq!(number(SWITCH), Some(372));
        let found = ["common_pid", "prev_pid", "prev_comm[16]", "next_pid"].map(|name| field(SWITCH, name, 4));
        assert_eq!(found, [Some(4), Some(32), None, None]);
        assert_eq!(
            (number(""), field("field:", "", 0), field("field:a b;offset:x;size:1", "b", 1)),
            (None, None, None)
        );
    }
}
