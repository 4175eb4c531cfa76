//! Who holds what a call was refused: the lock of a file, the port, the program that runs. Other users' processes may not be seen.

use serde_json::{json, Value};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// More processes, or descriptors of one, are not looked at.
const MOST: usize = 20_000;

fn named(pid: i32) -> Value {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    json!({"pid": pid, "name": name.trim_end()})
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).take(MOST)
}

/// The process that has a lock on the file behind a descriptor: /proc/locks, see proc(5).
pub(crate) fn of_lock(pid: i32, fd: i32) -> Option<Value> {
    let file = fs::metadata(format!("/proc/{pid}/fd/{fd}")).ok()?;
    let list = fs::read_to_string("/proc/locks").ok()?;
    let holder = list.lines().filter(|line| !line.contains("->")).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let inode = words.get(5)?.rsplit(':').next()?;
        let holder: i32 = words.get(4)?.parse().ok()?;
        (inode.parse() == Ok(file.ino()) && holder != pid).then_some(holder)
    })?;
    (holder > 0).then(|| named(holder))
}

/// The process that listens on this TCP port.
pub(crate) fn of_port(pid: i32, port: u16) -> Option<Value> {
    const LISTENS: &str = "0A";
    let inode = ["tcp", "tcp6"].iter().find_map(|name| {
        let list = fs::read_to_string(format!("/proc/{pid}/net/{name}")).ok()?;
        list.lines().skip(1).find_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let local = u16::from_str_radix(words.get(1)?.rsplit(':').next()?, 16).ok()?;
            (local == port && words.get(3) == Some(&LISTENS)).then(|| words.get(9).map(ToString::to_string))?
        })
    })?;
    let wanted = format!("socket:[{inode}]");
    pids()
        .find(|pid| {
            let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().take(MOST);
            entries.into_iter().any(|fd| fs::read_link(fd.path()).is_ok_and(|to| to == Path::new(&wanted)))
        })
        .map(named)
}

/// A process that runs this program, or has it open for writing.
pub(crate) fn of_program(file: &Path, runs: bool) -> Option<Value> {
    let wanted = fs::metadata(file).ok()?;
    let same = |path: &Path| fs::metadata(path).is_ok_and(|at| (at.dev(), at.ino()) == (wanted.dev(), wanted.ino()));
    let has = |pid: &i32| {
        if runs {
            return same(Path::new(&format!("/proc/{pid}/exe")));
        }
        let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten().take(MOST);
        // The link of a descriptor says how it is open by its own mode.
        entries
            .into_iter()
            .any(|fd| fs::symlink_metadata(fd.path()).is_ok_and(|link| link.mode() & 0o200 != 0) && same(&fd.path()))
    };
    pids().find(has).map(named)
}
