//! What tables exist and what their columns are: the contract between whoever writes rows and whoever reads them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow_schema::{DataType, Field, Schema, SchemaRef};

include!(concat!(env!("OUT_DIR"), "/tables.rs"));

/// Who wrote a file.
pub(crate) const CREATED_BY: &str = concat!("leadline ", env!("CARGO_PKG_VERSION"));

/// Whether a table is stored or made by SQL from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Stored as Parquet segments.
    Table,
    /// SQL over other tables; never written.
    View,
}

/// The type of a column, as its TOML names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// `int32`
    Int32,
    /// `int64`
    Int64,
    /// `uint32`
    UInt32,
    /// `uint64`
    UInt64,
    /// `float64`
    Float64,
    /// `string`, UTF-8
    String,
    /// `binary`, any bytes
    Binary,
    /// `bool`
    Bool,
    /// `list<type>`: any number of values of a type that is no list itself, none of them null
    List(&'static ColumnType),
}

impl ColumnType {
    /// The Arrow type of such a column.
    pub fn data_type(self) -> DataType {
        match self {
            ColumnType::Int32 => DataType::Int32,
            ColumnType::Int64 => DataType::Int64,
            ColumnType::UInt32 => DataType::UInt32,
            ColumnType::UInt64 => DataType::UInt64,
            ColumnType::Float64 => DataType::Float64,
            ColumnType::String => DataType::Utf8,
            ColumnType::Binary => DataType::Binary,
            ColumnType::Bool => DataType::Boolean,
            ColumnType::List(item) => DataType::List(Arc::new(Field::new_list_field(item.data_type(), false))),
        }
    }
}

impl fmt::Display for ColumnType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ColumnType::List(item) => return write!(f, "list<{item}>"),
            ColumnType::Int32 => "int32",
            ColumnType::Int64 => "int64",
            ColumnType::UInt32 => "uint32",
            ColumnType::UInt64 => "uint64",
            ColumnType::Float64 => "float64",
            ColumnType::String => "string",
            ColumnType::Binary => "binary",
            ColumnType::Bool => "bool",
        })
    }
}

/// One column of a table.
#[derive(Debug)]
pub struct ColumnSpec {
    /// Name, as in SQL.
    pub name: &'static str,
    /// Type of its values.
    pub column_type: ColumnType,
    /// Unit of its values; empty for none.
    pub unit: &'static str,
    /// Whether a row may have no value here.
    pub nullable: bool,
}

/// One table or view.
#[derive(Debug)]
pub struct TableSpec {
    /// Name, as in SQL and as the folder in a capture.
    pub name: &'static str,
    /// Stored or made by SQL.
    pub kind: Kind,
    /// One line for people.
    pub title: &'static str,
    /// The probe that fills it; empty for a view.
    pub probe: &'static str,
    /// The column by which its rows are ordered; empty for none.
    pub clock: &'static str,
    /// Columns in their order. Of a view: without those it takes over whole from another table.
    pub columns: &'static [ColumnSpec],
    schema: OnceLock<SchemaRef>,
}

impl TableSpec {
    /// A table that no file describes, for tests.
    #[cfg(test)]
    pub(crate) const fn new(name: &'static str, kind: Kind, columns: &'static [ColumnSpec]) -> TableSpec {
        TableSpec { name, kind, title: "", probe: "", clock: "", columns, schema: OnceLock::new() }
    }

    /// The Arrow schema: every column in order, not null unless the TOML says so.
    pub fn schema(&self) -> SchemaRef {
        let make = || {
            let field = |c: &ColumnSpec| Field::new(c.name, c.column_type.data_type(), c.nullable);
            Arc::new(Schema::new(self.columns.iter().map(field).collect::<Vec<_>>()))
        };
        Arc::clone(self.schema.get_or_init(make))
    }
}

/// Every table and view, by name.
pub fn specs() -> &'static [TableSpec] {
    &TABLES
}

/// The table or view of this name.
pub fn spec(name: &str) -> Option<&'static TableSpec> {
    let at = TABLES.binary_search_by(|t| t.name.cmp(name)).ok()?;
    TABLES.get(at)
}
