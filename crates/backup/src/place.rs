//! Places in files, and names of files that lead nowhere else.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use crate::Member;

/// Bytes of a part that is read at once.
const PART: u64 = 32 << 20;

/// Parts of members that can be read one by one, in their order.
pub(crate) fn parts_of(members: &[Member]) -> Vec<Range<usize>> {
    let (mut parts, mut from, mut bytes) = (Vec::new(), 0, 0_u64);
    for (number, member) in members.iter().enumerate() {
        bytes = member.bytes.saturating_add(bytes);
        if bytes >= PART || number + 1 == members.len() {
            parts.push(from..number + 1);
            (from, bytes) = (number + 1, 0);
        }
    }
    parts
}

/// A name without what leads to a folder of its own; none when it leads out of one.
pub(crate) fn plain(name: &[u8]) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in Path::new(OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::ParentDir => return None,
            Component::RootDir | Component::CurDir | Component::Prefix(_) => {}
        }
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_nowhere_else() {
        let of = |name: &[u8]| plain(name).map(|path| path.display().to_string());
        assert_eq!(of(b"./base/5/1259"), Some("base/5/1259".into()));
        assert_eq!(of(b"/base//5/./1259"), Some("base/5/1259".into()));
        assert_eq!((of(b"../x"), of(b"base/../../x"), of(b"./")), (None, None, Some(String::new())));
    }
}
