//! Names of relation files: what they mean, and how the file of a segment is called.
//!
//! Source: src/common/relpath.c: N, with _fsm, _vm or _init for other forks and .1, .2 ... for each further segment; t3_N for the
//! temporary relations of session 3.

use std::path::{Path, PathBuf};

use leadline_page::postgres::Fork;

use crate::ids::RelFile;
use crate::space::{DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};

/// Bytes of a page unless the server was built otherwise.
pub const DEFAULT_BLOCK_SIZE: u32 = leadline_page::postgres::DEFAULT_BLOCK_SIZE;
/// Bytes of a file before the next one begins, likewise.
pub const SEGMENT_BYTES: u32 = 1 << 30;
/// Pages of that size in a file unless the server was built otherwise.
pub const DEFAULT_SEGMENT_BLOCKS: u32 = SEGMENT_BYTES / DEFAULT_BLOCK_SIZE;

/// What the name of a relation file says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct FileName {
    pub filenode: u32,
    pub fork: Fork,
    pub segment: u32,
}

impl FileName {
    /// Of a relation that is not temporary; none when it is the name of something else.
    pub fn parse(name: &str) -> Option<FileName> {
        let (name, segment) = match name.split_once('.') {
            Some((name, segment)) => (name, number(segment)?),
            None => (name, 0),
        };
        let (name, fork) = match name.split_once('_') {
            Some((name, suffix)) => (name, Fork::of_suffix(suffix)?),
            None => (name, Fork::Main),
        };
        Some(FileName { filenode: number(name)?, fork, segment })
    }

    /// The same, of temporary relations too.
    pub fn parse_any(name: &str) -> Option<FileName> {
        let session = name.strip_prefix('t').and_then(|rest| rest.split_once('_')).filter(|(s, _)| is_digits(s));
        FileName::parse(session.map_or(name, |(_, name)| name))
    }
}

/// A number as PostgreSQL writes it into names: no sign, no zero in front.
fn number(text: &str) -> Option<u32> {
    text.parse().ok().filter(|_| is_digits(text) && !text.starts_with('0'))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// The file of a segment of a relation whose first file is `first`.
pub fn segment_path(first: &Path, segment: u32) -> PathBuf {
    if segment == 0 {
        return first.to_owned();
    }
    let mut name = first.to_owned().into_os_string();
    name.push(format!(".{segment}"));
    name.into()
}

/// Which relation a path in a data directory is of: what it does not tell is 0.
pub fn of_path(path: &Path) -> (RelFile, FileName) {
    let name = path.file_name().and_then(|name| FileName::parse_any(name.to_str()?)).unwrap_or_default();
    let above = |n: usize| path.ancestors().nth(n).and_then(|p| p.file_name()?.to_str());
    let (spc, db) = match (above(1), above(2), above(4)) {
        (Some("global"), _, _) => (GLOBAL_TABLESPACE, 0),
        (Some(db), Some("base"), _) => (DEFAULT_TABLESPACE, number(db).unwrap_or(0)),
        (Some(db), Some(version), Some("pg_tblspc")) if version.starts_with("PG_") => {
            (above(3).and_then(number).unwrap_or(0), number(db).unwrap_or(0))
        }
        _ => (0, 0),
    };
    (RelFile { spc, db, rel: name.filenode }, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_say_what_a_file_is() {
        let of = |path: &str| {
            let (r, f) = of_path(Path::new(path));
            (r.spc, r.db, r.rel, f.fork, f.segment)
        };
        assert_eq!(of("/d/base/5/1259"), (1663, 5, 1259, Fork::Main, 0));
        assert_eq!(of("/d/base/5/1259_vm.3"), (1663, 5, 1259, Fork::Vm, 3));
        assert_eq!(of("/d/global/1262_fsm"), (1664, 0, 1262, Fork::Fsm, 0));
        assert_eq!(of("/d/pg_tblspc/77/PG_15_202209061/5/16385_init"), (77, 5, 16385, Fork::Init, 0));
        assert_eq!(of("/d/base/5/t3_16384"), (1663, 5, 16384, Fork::Main, 0));
        assert_eq!(of("/d/base/5/t12_16384_fsm.1"), (1663, 5, 16384, Fork::Fsm, 1));
        assert_eq!(of("/d/base/5/tx_16384_fsm"), (1663, 5, 0, Fork::Main, 0));
    }

    #[test]
    fn other_names_are_refused() {
        for other in ["t3_16384", "PG_VERSION", "1259.x", "01", "1_vmx", "1_", "1_fsm.01", ""] {
            assert_eq!(FileName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn segments_are_numbered_from_the_second_on() {
        let of = |n| segment_path(Path::new("base/5/1_vm"), n).display().to_string();
        assert_eq!((of(0), of(2)), ("base/5/1_vm".into(), "base/5/1_vm.2".into()));
    }
}
