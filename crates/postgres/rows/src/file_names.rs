//! Which relation has which file, in all databases of a data directory.

use std::path::Path;

use crate::catalog::{databases, is_loss, Catalog};
use leadline_datadir::{DataDir, GLOBAL_TABLESPACE};
use leadline_errors::{Error, Result};

/// A relation and the number of its file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct FileName {
    pub tablespace: u32,
    /// 0 of what all databases share.
    pub database: u32,
    pub filenode: u32,
    /// The database's name; empty of what all share.
    pub datname: String,
    /// schema.name
    pub relation: String,
}

/// A database whose catalog is lost, and why.
pub type Refused = (String, Error);

/// The relations of all databases that have a file; and the databases whose catalogs are lost, and why.
///
/// # Errors
/// When a catalog cannot be read.
pub fn file_names(data_dir: &Path) -> Result<(Vec<FileName>, Vec<Refused>)> {
    let dir = DataDir::open(data_dir)?;
    let (mut found, mut lost, mut has_shared) = (Vec::new(), Vec::new(), false);
    for database in &databases(&dir)? {
        let catalog = match Catalog::open(&dir, database) {
            Ok(catalog) => catalog,
            // The files of the others have names all the same.
            Err(e) if is_loss(&e) => {
                lost.push((database.datname.clone(), e));
                continue;
            }
            Err(e) => return Err(e),
        };
        for class in catalog.classes.values() {
            let filenode = catalog.filenode(class);
            let is_shared = class.reltablespace == GLOBAL_TABLESPACE;
            if filenode == 0 || is_shared && has_shared {
                continue;
            }
            found.push(FileName {
                tablespace: if class.reltablespace == 0 { database.dattablespace } else { class.reltablespace },
                database: if is_shared { 0 } else { database.oid },
                filenode,
                datname: if is_shared { String::new() } else { database.datname.clone() },
                relation: format!("{}.{}", class.schema, class.relname),
            });
        }
        has_shared = true;
    }
    Ok((found, lost))
}
