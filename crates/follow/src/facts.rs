//! Facts behind a failure, read while its process is stopped: the file, its mount, who is refused where, limits, space.
//!
//! Everything is seen as the process sees it, through /proc/PID/root. Links with absolute targets below another root (containers) are
//! followed in ours: a fact is then missing or another file's, and the reader is told the path.

use crate::memory::text;
use serde_json::{json, Map, Value};
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The beginning of a file that tells what it is.
const HEAD: u64 = 16 * 1024;
const X_BITS: u32 = 0o111;

/// An absolute path of the process's own view.
pub(crate) fn absolute(pid: i32, folder: Option<i32>, path: &[u8]) -> Option<Vec<u8>> {
    if path.first() == Some(&b'/') {
        return Some(path.to_vec());
    }
    let base = match folder {
        Some(fd) if fd >= 0 => descriptor(pid, fd)?,
        _ => fs::read_link(format!("/proc/{pid}/cwd")).ok()?.into_os_string().as_bytes().to_vec(),
    };
    let mut path = path;
    while let Some(rest) = path.strip_prefix(b"./") {
        path = rest;
    }
    Some(if path.is_empty() { base } else { [base.as_slice(), b"/", path].concat() })
}

/// What a descriptor stands for: a path, or `socket:[123]`.
pub(crate) fn descriptor(pid: i32, fd: i32) -> Option<Vec<u8>> {
    Some(fs::read_link(format!("/proc/{pid}/fd/{fd}")).ok()?.into_os_string().as_bytes().to_vec())
}

pub(crate) fn in_root(pid: i32, path: &[u8]) -> PathBuf {
    let relative = path.strip_prefix(b"/").unwrap_or(path);
    Path::new(&format!("/proc/{pid}/root")).join(OsStr::from_bytes(relative))
}

pub(crate) fn exists(pid: i32, path: &[u8]) -> bool {
    fs::symlink_metadata(in_root(pid, path)).is_ok()
}

/// All that may explain why `path` was refused.
pub(crate) fn file_facts(pid: i32, path: &[u8]) -> Value {
    let mut facts = Map::new();
    let seen = in_root(pid, path);
    let found = fs::metadata(&seen);
    facts.insert("exists".into(), found.is_ok().into());
    if let Ok(meta) = &found {
        facts.insert("file".into(), json!({
            "type": kind_of(meta), "mode": meta.mode() & 0o7777, "uid": meta.uid(), "gid": meta.gid(), "size": meta.size(),
            "executable": meta.mode() & X_BITS != 0, "device": meta.dev(),
            "attributes": statx(&seen, 0).map(|found| attributes(&found)),
        }));
        if meta.is_file() {
            facts.insert("content".into(), content(pid, &seen));
        }
    }
    if let Some(mount) = mount_of(pid, path) {
        facts.insert("mount".into(), mount);
    }
    facts.insert("walk".into(), walk(pid, path));
    facts.insert("who".into(), who(pid));
    facts.insert("space".into(), space(&seen));
    Value::Object(facts)
}

fn kind_of(meta: &fs::Metadata) -> &'static str {
    let kind = meta.file_type();
    if kind.is_dir() {
        "folder"
    } else if kind.is_file() {
        "file"
    } else if kind.is_socket() {
        "socket"
    } else if kind.is_fifo() {
        "pipe"
    } else {
        "device"
    }
}

/// Script or ELF, and whether what it needs to run is there.
fn content(pid: i32, seen: &Path) -> Value {
    let mut head = Vec::new();
    match fs::File::open(seen).map(|file| file.take(HEAD).read_to_end(&mut head)) {
        Ok(Ok(_)) => {}
        _ => return Value::Null,
    }
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
        // Only blanks and tabs end it: a carriage return is part of the name.
        let program = line.split(|byte| b" \t".contains(byte)).find(|word| !word.is_empty()).unwrap_or_default();
        return json!({"form": "script", "interpreter": text(program), "interpreter_exists": in_root(pid, program).exists(),
            "carriage_return": line.ends_with(b"\r")});
    }
    if head.starts_with(b"\x7fELF") {
        let interpreter = interpreter(&head);
        let exists = interpreter.is_none_or(|name| in_root(pid, name).exists());
        return json!({"form": "elf", "class": head.get(4), "machine": number(&head, 18, 2), "order": head.get(5),
            "interpreter": interpreter.map(text), "interpreter_exists": exists});
    }
    json!({"form": if head.is_empty() { "empty" } else { "other" }})
}

/// A number in the byte order of the ELF file.
fn number(head: &[u8], at: usize, width: usize) -> Option<u64> {
    let bytes = head.get(at..at.checked_add(width)?)?;
    let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
    Some(if head.get(5) == Some(&2) { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) })
}

/// PT_INTERP, if its text is in the head, as linkers put it.
fn interpreter(head: &[u8]) -> Option<&[u8]> {
    const PT_INTERP: u64 = 3;
    let wide = head.get(4)? == &2;
    let (table, size, count) = if wide { ((32, 8), 54, 56) } else { ((28, 4), 42, 44) };
    let start = usize::try_from(number(head, table.0, table.1)?).ok()?;
    let size = usize::try_from(number(head, size, 2)?).ok()?;
    for n in 0..usize::try_from(number(head, count, 2)?).ok()? {
        let at = start.checked_add(n.checked_mul(size)?)?;
        if number(head, at, 4)? != PT_INTERP {
            continue;
        }
        let (offset, length) = if wide { ((at + 8, 8), (at + 32, 8)) } else { ((at + 4, 4), (at + 16, 4)) };
        let offset = usize::try_from(number(head, offset.0, offset.1)?).ok()?;
        let length = usize::try_from(number(head, length.0, length.1)?).ok()?;
        let name = head.get(offset..offset.checked_add(length)?)?;
        return Some(name.strip_suffix(b"\0").unwrap_or(name));
    }
    None
}

/// The mount that the path lies on: by the number that the kernel gives, or else by the longest mount point.
fn mount_of(pid: i32, path: &[u8]) -> Option<Value> {
    let list = fs::read(format!("/proc/{pid}/mountinfo")).ok()?;
    let mut at = path;
    let wanted = loop {
        if let Some(id) = mount_id(&in_root(pid, at)) {
            break Some(id);
        }
        match at.iter().rposition(|byte| *byte == b'/') {
            Some(0) | None => break None,
            Some(end) => at = &at[..end],
        }
    };
    let lines = list.split(|byte| *byte == b'\n');
    let mut mounts = lines.filter_map(parse_mount);
    let found = mounts.find(|mount| Some(mount.id) == wanted)?;
    Some(
        json!({"point": text(&found.point), "options": text(found.options), "type": text(found.kind), "source": text(found.source),
        "super_options": text(found.super_options)}),
    )
}

struct Mount<'a> {
    id: u64,
    point: Vec<u8>,
    options: &'a [u8],
    kind: &'a [u8],
    source: &'a [u8],
    super_options: &'a [u8],
}

/// One line of mountinfo: see proc(5).
fn parse_mount(line: &[u8]) -> Option<Mount<'_>> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    Some(Mount {
        id: std::str::from_utf8(fields.first()?).ok()?.parse().ok()?,
        point: unescape(fields.get(4)?),
        options: fields.get(5)?,
        kind: fields.get(dash + 1)?,
        source: fields.get(dash + 2)?,
        super_options: fields.get(dash + 3)?,
    })
}

/// A blank is \040 in mountinfo.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < field.len() {
        let octal = field.get(at + 1..at + 4).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match octal.filter(|_| field[at] == b'\\') {
            Some(digits) => {
                out.push(digits.iter().fold(0_u32, |value, digit| value * 8 + u32::from(digit - b'0')) as u8);
                at += 4;
            }
            None => {
                out.push(field[at]);
                at += 1;
            }
        }
    }
    out
}

fn mount_id(path: &Path) -> Option<u64> {
    let found = statx(path, libc::STATX_MNT_ID)?;
    (found.stx_mask & libc::STATX_MNT_ID != 0).then_some(found.stx_mnt_id)
}

fn statx(path: &Path, mask: libc::c_uint) -> Option<libc::statx> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: all zeros is a valid statx, and the path ends with a zero.
    unsafe {
        let mut found: libc::statx = std::mem::zeroed();
        (libc::statx(libc::AT_FDCWD, path.as_ptr(), 0, mask, &mut found) == 0).then_some(found)
    }
}

/// Attributes that refuse changes, as lsattr(1) shows them.
fn attributes(found: &libc::statx) -> Vec<&'static str> {
    let known = [(libc::STATX_ATTR_IMMUTABLE, "immutable"), (libc::STATX_ATTR_APPEND, "append only")];
    known.iter().filter(|(bit, _)| found.stx_attributes & *bit as u64 != 0).map(|(_, name)| *name).collect()
}

/// The folders of a path and the file, up to the first that is missing.
fn walk(pid: i32, path: &[u8]) -> Value {
    let mut out = Vec::new();
    let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for end in std::iter::once(1).chain(ends).chain([path.len()]).take(64) {
        let part = &path[..end.min(path.len())];
        match fs::metadata(in_root(pid, part)) {
            Ok(meta) => out
                .push(json!({"path": text(part), "mode": meta.mode() & 0o7777, "uid": meta.uid(), "gid": meta.gid(),
                "type": kind_of(&meta), "attributes": statx(&in_root(pid, part), 0).map(|found| attributes(&found))})),
            Err(e) => {
                out.push(json!({"path": text(part), "error": e.raw_os_error()}));
                break;
            }
        }
    }
    Value::Array(out)
}

/// Whose rights the process has: as the kernel uses them for files.
fn who(pid: i32) -> Value {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let last = |name: &str| field(name).and_then(|ids| ids.split_whitespace().last()?.parse::<u32>().ok());
    let groups: Vec<u32> =
        field("Groups:").unwrap_or_default().split_whitespace().filter_map(|id| id.parse().ok()).collect();
    json!({"uid": last("Uid:"), "gid": last("Gid:"), "groups": groups, "capabilities": field("CapEff:"),
        "no_new_privileges": field("NoNewPrivs:") == Some("1")})
}

fn space(path: &Path) -> Value {
    let mut at = Some(path);
    while let Some(here) = at {
        if let Ok(name) = std::ffi::CString::new(here.as_os_str().as_bytes()) {
            // SAFETY: all zeros is a valid statvfs, and the path ends with a zero.
            let found = unsafe {
                let mut found: libc::statvfs = std::mem::zeroed();
                (libc::statvfs(name.as_ptr(), &mut found) == 0).then_some(found)
            };
            if let Some(v) = found {
                return json!({"free_bytes": v.f_bavail.saturating_mul(v.f_frsize), "total_bytes": v.f_blocks.saturating_mul(v.f_frsize),
                    "free_inodes": v.f_favail, "total_inodes": v.f_files});
            }
        }
        at = here.parent();
    }
    Value::Null
}

/// Limits of the process, soft and hard, and what it has of each that can be counted.
pub(crate) fn limit_facts(pid: i32) -> Value {
    let list = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default();
    let mut limits = Map::new();
    for line in list.lines().skip(1) {
        let (Some(name), Some(rest)) = (line.get(..26), line.get(26..)) else { continue };
        let mut values = rest.split_whitespace().map(|value| value.parse::<u64>().ok());
        limits.insert(name.trim().into(), json!([values.next().flatten(), values.next().flatten()]));
    }
    let open = fs::read_dir(format!("/proc/{pid}/fd")).map(|entries| entries.count()).ok();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let size_kb =
        status.lines().find_map(|line| line.strip_prefix("VmSize:")?.split_whitespace().next()?.parse::<u64>().ok());
    json!({"limits": limits, "open_files": open, "size_bytes": size_kb.map(|kb| kb * 1024), "who": who(pid), "group": full_group(pid)})
}

/// The control group around the process that has as many processes as it may; without a full one, the innermost that has a limit.
fn full_group(pid: i32) -> Option<Value> {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let mut limited = None;
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let roots: &[&str] = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
            "pids" => &["/sys/fs/cgroup/pids"],
            _ => continue,
        };
        for root in roots {
            let innermost = Path::new(root).join(path.trim_start_matches('/'));
            for group in innermost.ancestors().take_while(|group| group.starts_with(root)) {
                let (Some(most), Some(has)) =
                    (count_in(&group.join("pids.max")), count_in(&group.join("pids.current")))
                else {
                    continue;
                };
                let found = json!({"path": group.to_string_lossy(), "most": most, "has": has});
                if has >= most {
                    return Some(found);
                }
                limited = limited.or(Some(found));
            }
        }
    }
    limited
}

/// The number that a small file has; None where it has a word.
fn count_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

pub(crate) fn shares_namespace(pid: i32, kind: &str) -> bool {
    let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok();
    namespace(&pid.to_string()) == namespace("self")
}

/// How many instances and watches of inotify a user may have. None for another user namespace, whose limits only it can read.
pub(crate) fn inotify_limits(pid: i32) -> Option<Value> {
    if !shares_namespace(pid, "user") {
        return None;
    }
    let limit = |name: &str| count_in(&Path::new("/proc/sys/fs/inotify").join(name));
    Some(json!({"instances": limit("max_user_instances"), "watches": limit("max_user_watches")}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line = b"36 35 98:0 /mnt1 /mnt\\040two rw,noexec shared:1 master:2 - ext3 /dev/root rw,errors=continue";
        let mount = parse_mount(line).expect("a mount");
        assert_eq!((mount.id, mount.point.as_slice(), mount.options), (36, &b"/mnt two"[..], &b"rw,noexec"[..]));
        assert_eq!((mount.kind, mount.super_options), (&b"ext3"[..], &b"rw,errors=continue"[..]));
        for end in 0..line.len() {
            let _ = parse_mount(&line[..end]);
        }
        assert_eq!(unescape(b"\\0\\777\\"), b"\\0\xff\\");
    }

    #[test]
    fn own_program_and_any_bytes() {
        let own = fs::read("/proc/self/exe").expect("own program");
        let head = &own[..4096];
        assert!(interpreter(head).is_some_and(|name| name.starts_with(b"/lib")));
        for at in 0..head.len().min(700) {
            for value in [0, 1, 0x7f, 0xff] {
                let mut odd = head.to_vec();
                odd[at] = value;
                let _ = interpreter(&odd);
                let _ = interpreter(&odd[..at]);
            }
        }
    }

    #[test]
    fn facts_of_a_path_that_is_not_there() {
        let facts = file_facts(std::process::id() as i32, b"/tmp/no/such/file");
        assert_eq!(facts["exists"], false);
        assert_eq!(facts["walk"].as_array().map(Vec::len), Some(3), "{facts}");
        assert!(facts["mount"]["point"].is_string());
    }
}
