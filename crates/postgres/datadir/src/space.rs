//! Tablespaces: where the files of a database are.
//!
//! Source: src/common/relpath.c: base/DB, global, pg_tblspc/SPACE/PG_VERSION_CATALOG/DB.

use std::io;
use std::path::{Path, PathBuf};

/// `pg_default`: `base`.
pub const DEFAULT_TABLESPACE: u32 = 1663;
/// `pg_global`: `global`.
pub const GLOBAL_TABLESPACE: u32 = 1664;

/// Whether a folder in a tablespace is that of a server of this major, as PG_15_202209061 is.
pub fn own_version(name: &str, major: u32) -> bool {
    name.strip_prefix("PG_").and_then(|rest| rest.split_once('_')).is_some_and(|(found, _)| found.parse() == Ok(major))
}

/// The folder of a database's files in a tablespace; none when the tablespace has no folder of this major.
///
/// # Errors
/// When the tablespace cannot be read.
pub fn database_folder(root: &Path, major: u32, space: u32, database: u32) -> io::Result<Option<PathBuf>> {
    match space {
        GLOBAL_TABLESPACE => Ok(Some(root.join("global"))),
        DEFAULT_TABLESPACE => Ok(Some(root.join("base").join(database.to_string()))),
        space => {
            // Of several servers that share a tablespace's folder, as after pg_upgrade, each has a folder of its own there.
            for entry in std::fs::read_dir(root.join("pg_tblspc").join(space.to_string()))? {
                let entry = entry?;
                if entry.file_name().to_str().is_some_and(|name| own_version(name, major)) {
                    return Ok(Some(entry.path().join(database.to_string())));
                }
            }
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_another_major_is_not_taken() {
        assert!(own_version("PG_15_202209061", 15));
        for other in ["PG_15", "PG_1_5", "PG_150_1", "PG_15x_1", "15_1", "PG__1"] {
            assert!(!own_version(other, 15), "{other}");
        }
    }
}
