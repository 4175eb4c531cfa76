//! The major versions whose files are known, and what tells them apart.

use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

/// The majors whose catalogs, pages and log are known.
pub const MAJORS: RangeInclusive<u32> = 13..=18;

/// Major, `PG_CONTROL_VERSION` (catalog/pg_control.h), `CATALOG_VERSION_NO` (catalog/catversion.h) of each release.
const RELEASES: [(u32, u32, u32); 7] = [
    (12, 1201, 201_909_212),
    (13, 1300, 202_007_201),
    (14, 1300, 202_107_181),
    (15, 1300, 202_209_061),
    (16, 1300, 202_307_071),
    (17, 1700, 202_406_281),
    (18, 1800, 202_506_291),
];

/// The major that wrote catalogs of this version; none for a build before its release or of a fork.
pub fn major_of_catalog(catalog_version: u32) -> Option<u32> {
    RELEASES.iter().find(|r| r.2 == catalog_version).map(|r| r.0)
}

/// The majors with control files of this version; empty when it is not known.
pub fn majors_of_control(control_version: u32) -> Vec<u32> {
    RELEASES.iter().filter(|r| r.1 == control_version).map(|r| r.0).collect()
}

/// What the file `PG_VERSION` of a data directory says, as it is there.
///
/// # Errors
/// When it cannot be read.
pub fn read_version(root: &Path) -> io::Result<String> {
    Ok(String::from_utf8_lossy(&crate::control::read_bytes(&root.join("PG_VERSION"))?).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_major_is_told_by_its_catalog() {
        for major in MAJORS {
            let release = RELEASES.iter().find(|r| r.0 == major).unwrap();
            assert_eq!(major_of_catalog(release.2), Some(major));
            assert!(majors_of_control(release.1).contains(&major));
        }
        assert_eq!((major_of_catalog(1), majors_of_control(1)), (None, vec![]));
    }
}
