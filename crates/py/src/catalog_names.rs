//! `CatalogNames`: names of databases, roles and relations from the files of a data directory.

use std::path::PathBuf;

use leadline_datadir::DataDir;
use leadline_errors::{Error as Said, Kind};
use leadline_rows::catalog::{databases_maybe, Database};
use leadline_rows::catalog_names::{database_bytes, relations, roles};
use pyo3::prelude::*;

use crate::error::Error;

/// The catalogs of one data directory.
#[pyclass(frozen, module = "leadline._core.catalog")]
pub(crate) struct CatalogNames {
    dir: DataDir,
    databases: Vec<Database>,
}

/// A row of the table `relation` of a capture.
type Row = (u32, u32, u32, u32, String, String, char, String, u32, i64, f64);

#[pymethods]
impl CatalogNames {
    #[new]
    fn new(py: Python<'_>, data_dir: PathBuf) -> Result<CatalogNames, Error> {
        py.detach(|| {
            let dir = DataDir::open(&data_dir)?;
            let databases = databases_maybe(&dir)?;
            Ok(CatalogNames { dir, databases })
        })
    }

    /// (oid, name, default tablespace, bytes or -1) of each database.
    fn databases(&self, py: Python<'_>) -> Vec<(u32, String, u32, i64)> {
        let row = |d: &Database| (d.oid, d.datname.clone(), d.dattablespace, database_bytes(&self.dir, d));
        py.detach(|| self.databases.iter().map(row).collect())
    }

    /// (oid, name) of each role.
    fn roles(&self, py: Python<'_>) -> Result<Vec<(u32, String)>, Error> {
        Ok(py.detach(|| roles(&self.dir))?)
    }

    /// Rows of the table `relation` for one database, shared relations (datid 0) with it.
    fn relations(&self, py: Python<'_>, datid: u32) -> Result<Vec<Row>, Error> {
        let database = self.databases.iter().find(|d| d.oid == datid);
        let database = database.ok_or_else(|| Said::new(Kind::NotFound, format!("no database with OID {datid}")))?;
        let found = py.detach(|| relations(&self.dir, database))?;
        let row = |r: leadline_rows::catalog_names::RelationName| {
            let (kind, tuples) = (r.relkind, f64::from(r.reltuples));
            (
                r.datid,
                r.relid,
                r.relfilenode,
                r.tablespace,
                r.schema,
                r.relname,
                kind,
                r.am,
                r.table_relid,
                r.bytes,
                tuples,
            )
        };
        Ok(found.into_iter().map(row).collect())
    }
}
