//! What tables exist and what their columns are: the contract between whoever writes rows and whoever reads them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parking_lot::{Mutex, MutexGuard};

use crate::error::Error;

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
    /// The type that a table file names so. None for a name that is no type.
    pub fn named(name: &str) -> Option<ColumnType> {
        static SINGLE: [ColumnType; 8] = [
            ColumnType::Int32,
            ColumnType::Int64,
            ColumnType::UInt32,
            ColumnType::UInt64,
            ColumnType::Float64,
            ColumnType::String,
            ColumnType::Binary,
            ColumnType::Bool,
        ];
        let find = |name: &str| SINGLE.iter().find(|kind| kind.to_string() == name);
        match name.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>')) {
            Some(item) => find(item).map(ColumnType::List),
            None => find(name).copied(),
        }
    }

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

/// Every table and view that has a file here, by name.
pub fn specs() -> &'static [TableSpec] {
    &TABLES
}

/// The table or view of this name.
pub fn spec(name: &str) -> Option<&'static TableSpec> {
    let built_in = TABLES.binary_search_by(|t| t.name.cmp(name)).ok();
    built_in.and_then(|at| TABLES.get(at)).or_else(|| defined().get(name).copied())
}

/// Stored tables of engines in other packages.
static DEFINED: Mutex<BTreeMap<&'static str, &'static TableSpec>> = Mutex::new(BTreeMap::new());

fn defined() -> MutexGuard<'static, BTreeMap<&'static str, &'static TableSpec>> {
    DEFINED.lock() // an entry is there as a whole, or not at all
}

/// A column of a table that is defined at run time: its name, the name of its type as in a table file, whether it may be null.
pub type Column<'a> = (&'a str, &'a str, bool);

/// Adds a stored table that no file described when this was compiled. The first definition of a name counts until the process ends;
/// it may be repeated.
///
/// # Errors
/// [`Error::Definition`] for a name that is no plain word or has other columns already, and for columns that no table can have.
pub fn define(name: &str, clock: &str, columns: &[Column<'_>]) -> Result<(), Error> {
    let wrong = |detail: String| Err(Error::Definition { table: name.to_owned(), detail });
    let plain = |word: &str| word.starts_with(|c: char| c.is_ascii_lowercase()) && word.bytes().all(is_word);
    if !plain(name) {
        return wrong("the name of a table has small letters, digits and _ only".to_owned());
    }
    let mut made: Vec<ColumnSpec> = Vec::new();
    for &(column, kind, nullable) in columns {
        let Some(column_type) = ColumnType::named(kind) else {
            return wrong(format!("column {column} has the unknown type {kind}"));
        };
        if !plain(column) || made.iter().any(|other| other.name == column) {
            return wrong(format!(
                "column {column} is there twice, or has other characters than small letters, digits and _"
            ));
        }
        made.push(ColumnSpec { name: column.to_owned().leak(), column_type, unit: "", nullable });
    }
    if made.is_empty() || !(clock.is_empty() || made.iter().any(|column| column.name == clock)) {
        return wrong(format!("it has no columns, or its clock {clock} is none of them"));
    }
    let mut all = defined();
    let there = TABLES.binary_search_by(|t| t.name.cmp(name)).ok().and_then(|at| TABLES.get(at));
    match there.or_else(|| all.get(name).copied()) {
        Some(old) if old.kind == Kind::Table && old.clock == clock && same(old.columns, &made) => Ok(()),
        Some(_) => wrong("there is another table or view of this name".to_owned()),
        None => {
            let name = &*name.to_owned().leak();
            let clock = &*clock.to_owned().leak();
            let columns = made.leak();
            let spec =
                TableSpec { name, kind: Kind::Table, title: "", probe: "", clock, columns, schema: OnceLock::new() };
            all.insert(name, Box::leak(Box::new(spec)));
            Ok(())
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
}

fn same(one: &[ColumnSpec], other: &[ColumnSpec]) -> bool {
    let told = |c: &ColumnSpec| (c.name, c.column_type, c.nullable);
    one.iter().map(told).eq(other.iter().map(told))
}
