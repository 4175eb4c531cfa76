//! Why the kernel ended a process: its stack was full, its control group or the host had no memory left, its time on the CPU was used up.
//!
//! A process that the kernel kills with SIGKILL cannot be looked at any more: what the kernel counts is compared with the count before.

use crate::tracee;
use serde_json::{json, Value};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// How far a function may reach below the stack pointer before it moves it, and the other way round.
const NEAR: u64 = 64 * 1024;

// -- memory ------------------------------------------------------------------------------------------------------------

/// Kills that the kernel has counted: of each control group seen, and of the host.
pub(crate) struct OutOfMemory {
    host: Option<u64>,
    groups: HashMap<PathBuf, u64>,
}

impl OutOfMemory {
    pub(crate) fn new() -> OutOfMemory {
        OutOfMemory { host: count_on("/proc/vmstat".as_ref(), "oom_kill"), groups: HashMap::new() }
    }

    /// The control group whose memory the process uses. What it has counted until now was not for our processes.
    pub(crate) fn group_of(&mut self, pid: i32) -> Option<PathBuf> {
        let list = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let found = list.lines().find_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?.trim_start_matches('/'));
            let root = match controllers {
                "" => "/sys/fs/cgroup",
                _ if controllers.split(',').any(|name| name == "memory") => "/sys/fs/cgroup/memory",
                _ => return None,
            };
            Some(Path::new(root).join(path)).filter(|group| kills_in(group).is_some())
        })?;
        if !self.groups.contains_key(&found) && self.groups.len() < 1000 {
            self.groups.insert(found.clone(), kills_in(&found).unwrap_or(0));
        }
        Some(found)
    }

    /// One kill more than before, of this group or of the host: the process that was just killed.
    pub(crate) fn killed(&mut self, group: Option<&Path>) -> Option<Value> {
        let host = count_on("/proc/vmstat".as_ref(), "oom_kill");
        let of_host = host.zip(self.host).is_some_and(|(now, before)| now > before);
        let group = group.and_then(|group| Some((group, kills_in(group)?)));
        let of_group = group.is_some_and(|(group, now)| self.groups.get(group).is_some_and(|before| now > *before));
        self.host = host;
        if let (Some((group, now)), true) = (group, of_group) {
            self.groups.insert(group.to_path_buf(), now);
            let limit = group.ancestors().find_map(|group| {
                // The file of version 1 has a huge number where there is no limit.
                let text = ["memory.max", "memory.limit_in_bytes"].map(|name| fs::read_to_string(group.join(name)));
                let bytes = text.iter().flatten().find_map(|text| text.trim().parse::<u64>().ok())?;
                (bytes < 1 << 60).then(|| json!([group.to_string_lossy(), bytes]))
            });
            return Some(json!({"group": group.to_string_lossy(), "limit": limit}));
        }
        of_host.then(|| json!({"group": null, "limit": null}))
    }
}

fn kills_in(group: &Path) -> Option<u64> {
    ["memory.events", "memory.oom_control"].iter().find_map(|name| count_on(&group.join(name), "oom_kill"))
}

/// The number behind a word at the beginning of a line.
fn count_on(file: &Path, word: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok())
}

// -- stack -------------------------------------------------------------------------------------------------------------

/// A thread stopped by SIGSEGV at this address: had its stack no more room? Then how large it was.
pub(crate) fn stack_full(tid: i32, address: u64) -> Option<Value> {
    let pointer = tracee::stack_pointer(tid)?;
    let list = fs::read_to_string(format!("/proc/{tid}/maps")).ok()?;
    let maps: Vec<Map> = list.lines().filter_map(Map::parse).collect();
    let size = below_the_stack(&maps, address, pointer)?;
    Some(json!({"size_bytes": size}))
}

struct Map<'a> {
    start: u64,
    end: u64,
    rights: &'a str,
}

impl Map<'_> {
    fn parse(line: &str) -> Option<Map<'_>> {
        let mut words = line.split_whitespace();
        let (start, end) = words.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        Some(Map { start: number(start)?, end: number(end)?, rights: words.next()? })
    }
}

/// The size of the stack that ends right above this address, which has no memory or a guard page.
fn below_the_stack(maps: &[Map], address: u64, pointer: u64) -> Option<u64> {
    if address.abs_diff(pointer) > NEAR && !(pointer <= address && address - pointer < 1 << 30) {
        return None;
    }
    let within = maps.iter().find(|map| map.start <= address && address < map.end);
    if within.is_some_and(|map| !map.rights.starts_with("---")) {
        return None;
    }
    let above = maps.iter().find(|map| map.start > address && map.rights.starts_with("rw"))?;
    let near = within.map_or(above.start - address < 1 << 20, |guard| guard.end == above.start);
    near.then_some(above.end - above.start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_below_a_stack() {
        let text =
            "10000-11000 ---p 0 00:00 0\n11000-19000 rw-p 0 00:00 0\n7ff000000000-7ff000800000 rw-p 0 00:00 0 [stack]";
        let maps: Vec<Map> = text.lines().filter_map(Map::parse).collect();
        assert_eq!(below_the_stack(&maps, 0x10ff8, 0x11000), Some(0x8000), "the guard page of a thread");
        assert_eq!(below_the_stack(&maps, 0x7feffffffff8, 0x7ff000000010), Some(0x800000), "the main thread");
        assert_eq!(below_the_stack(&maps, 0, 0x7ff000000010), None, "a null pointer");
        assert_eq!(below_the_stack(&maps, 0x11008, 0x11000), None, "memory that is there");
        assert_eq!(below_the_stack(&[], 1, u64::MAX), None);
        assert!(Map::parse("zz-1 rw").is_none() && Map::parse("").is_none());
    }
}
