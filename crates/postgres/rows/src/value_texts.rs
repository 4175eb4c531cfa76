//! Values that are not in a row, such as the constants of a stored expression.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;

use crate::catalog::Catalog;
use crate::find::database_catalog;
use crate::tables::built_in;
use crate::value::Types;
use leadline_errors::Result;

/// Prints values by the types of one database.
pub struct ValueTexts {
    catalog: Option<Catalog>,
    types: HashMap<u32, Types>,
}

impl ValueTexts {
    /// `database`: may be left out where there is one that is no template.
    ///
    /// # Errors
    /// When there is no such database or its catalogs cannot be read.
    pub fn open(data_dir: &Path, database: Option<&str>) -> Result<ValueTexts> {
        Ok(ValueTexts { catalog: Some(database_catalog(data_dir, database)?), types: HashMap::new() })
    }

    /// By the types that all servers have.
    pub fn built_in() -> ValueTexts {
        ValueTexts { catalog: None, types: HashMap::new() }
    }

    /// A value as the server prints it; None when it is none of its type, or the type is not known. `bytes`: without a length word.
    ///
    /// # Errors
    /// When the catalogs cannot be read.
    pub fn text(&mut self, oid: u32, bytes: &[u8]) -> Result<Option<String>> {
        if !self.types.contains_key(&oid) {
            let types = self.catalog.as_mut().map_or_else(|| Ok(built_in()), |catalog| catalog.types(&[oid]))?;
            self.types.insert(oid, types);
        }
        let types = &self.types[&oid];
        if !types.is_known(oid) {
            return Ok(None);
        }
        types.invalid.store(0, Relaxed);
        let text = types.text(types.printer(oid), bytes);
        Ok((types.invalid.load(Relaxed) == 0).then_some(text))
    }
}
