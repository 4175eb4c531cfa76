//! What /proc says of the server's processes: mappings, children, names.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

/// One line of /proc/PID/maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// One past the last address.
    pub end: u64,
    /// r, w, x, s or p.
    pub perms: String,
    /// Offset in the file.
    pub offset: u64,
    /// Inode of the file; for anonymous shared memory it names the segment.
    pub inode: u64,
    /// Path as the kernel prints it, with " (deleted)" when it is.
    pub path: String,
}

/// Parses the text of /proc/PID/maps; lines that do not parse are left out.
pub fn parse_maps(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_maps_line).collect()
}

fn parse_maps_line(line: &str) -> Option<Mapping> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let perms = fields.next()?.to_owned();
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let _device = fields.next()?;
    let inode = fields.next()?.parse().ok()?;
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        perms,
        offset,
        inode,
        path: fields.next().unwrap_or("").trim().to_owned(),
    })
}

/// The mappings of a process.
pub fn read_maps(pid: i32) -> io::Result<Vec<Mapping>> {
    Ok(parse_maps(&fs::read_to_string(format!("/proc/{pid}/maps"))?))
}

/// Fields of /proc/PID/stat after the command name, which may hold spaces and parentheses.
pub fn stat_fields(text: &str) -> Option<std::str::SplitAsciiWhitespace<'_>> {
    Some(text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace())
}

/// Parent of a process, and when it started in clock ticks since boot: the pair that tells a reused pid.
pub fn parent_and_start(pid: i32) -> Option<(i32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = stat_fields(&text)?.collect();
    Some((fields.get(1)?.parse().ok()?, fields.get(19)?.parse().ok()?))
}

/// The children of a process, ascending.
pub fn children(pid: i32) -> Vec<i32> {
    let mut found: Vec<i32> = match fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")) {
        Ok(text) => text.split_ascii_whitespace().filter_map(|p| p.parse().ok()).collect(),
        Err(_) => fs::read_dir("/proc")
            .map(|entries| {
                entries
                    .flatten()
                    .filter_map(|e| e.file_name().to_str()?.parse().ok())
                    .filter(|&p| parent_and_start(p).is_some_and(|(parent, _)| parent == pid))
                    .collect()
            })
            .unwrap_or_default(),
    };
    found.sort_unstable();
    found
}

/// The pid a process has in its own pid namespace: what a server in a container calls itself. Its pid here when that
/// cannot be read.
pub fn inner_pid(pid: i32) -> i32 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("NSpid:"));
    line.and_then(|l| l.split_ascii_whitespace().last()?.parse().ok()).unwrap_or(pid)
}

/// The process title ("postgres: checkpointer"), trimmed; empty when the process is gone.
pub fn title(pid: i32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).trim().to_owned()
}

/// The effective user and group of a process.
pub fn owner(pid: i32) -> io::Result<(u32, u32)> {
    let about = fs::metadata(format!("/proc/{pid}"))?;
    Ok((about.uid(), about.gid()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_lines_parse_with_deleted_files_and_none() {
        let text = "7f00-7f10 rw-s 00000000 00:01 4242       /dev/zero (deleted)\n5000-6000 r-xp 00001000 08:01 7 /a b/postgres\n\
                    7fff-8000 ---p 00000000 00:00 0\ngarbage\n";
        let maps = parse_maps(text);
        assert_eq!(maps.len(), 3);
        assert_eq!(
            (maps[0].start, maps[0].end, maps[0].inode, maps[0].path.as_str()),
            (0x7f00, 0x7f10, 4242, "/dev/zero (deleted)")
        );
        assert_eq!((maps[1].offset, maps[1].path.as_str()), (0x1000, "/a b/postgres"));
        assert_eq!(maps[2].path, "");
    }

    #[test]
    fn stat_survives_parentheses_in_the_name() {
        let fields: Vec<&str> = stat_fields("12 (a) b (c)) S 77 1").unwrap().collect();
        assert_eq!(fields, ["S", "77", "1"]);
        assert!(stat_fields("nothing here").is_none());
    }

    #[test]
    fn a_process_of_our_own_namespace_has_one_pid() {
        let pid = std::process::id() as i32;
        assert_eq!(inner_pid(pid), pid);
    }

    #[test]
    fn this_process_has_a_parent_a_start_and_maps() {
        let pid = std::process::id() as i32;
        let (parent, start) = parent_and_start(pid).unwrap();
        assert!(parent > 0 && start > 0);
        assert!(children(parent).contains(&pid));
        assert!(read_maps(pid).unwrap().iter().any(|m| m.perms.starts_with("r-x")));
    }
}
