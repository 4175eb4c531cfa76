//! Turns `python/leadline/tables/*.toml` into Rust constants, so that a column is written down in one place only and a
//! mistake in a table file is a build error.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// One table file. Keys that only Python needs (sql, needs, uses) are left alone.
#[derive(Deserialize)]
struct Table {
    name: String,
    kind: String,
    title: String,
    #[serde(default)]
    probe: String,
    #[serde(default)]
    clock: String,
    columns: Vec<Column>,
}

#[derive(Deserialize)]
struct Column {
    name: String,
    #[serde(rename = "type")]
    column_type: String,
    unit: String,
    #[serde(default)]
    nullable: bool,
}

fn main() {
    let folder = Path::new("../../python/leadline/tables");
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.expect("a readable folder").path())
        .filter(|path| path.extension().is_some_and(|e| e == "toml"))
        .collect();
    files.sort();

    let mut code = format!("static TABLES: [TableSpec; {}] = [\n", files.len());
    for file in &files {
        println!("cargo::rerun-if-changed={}", file.display());
        let text = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let table: Table = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let stem = file.file_stem().map(|s| s.to_string_lossy().into_owned());
        assert_eq!(stem.as_deref(), Some(table.name.as_str()), "{}: named after another table", file.display());
        write_table(&mut code, &table, file);
    }
    code.push_str("];\n");
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    std::fs::write(Path::new(&out).join("tables.rs"), code).expect("OUT_DIR can be written");
}

fn write_table(code: &mut String, table: &Table, file: &Path) {
    let kind = match table.kind.as_str() {
        "table" => "Table",
        "view" => "View",
        other => panic!("{}: unknown kind {other}", file.display()),
    };
    let _ = writeln!(
        code,
        "TableSpec {{ name: {:?}, kind: Kind::{kind}, title: {:?}, probe: {:?}, clock: {:?}, schema: OnceLock::new(), columns: &[",
        table.name, table.title, table.probe, table.clock
    );
    let clocked = table.clock.is_empty() || table.columns.iter().any(|c| c.name == table.clock);
    assert!(clocked, "{}: its clock {} is no column", file.display(), table.clock);
    let mut seen = BTreeSet::new();
    for column in &table.columns {
        if kind == "View" && column.name == "..." {
            continue; // "all columns of another table": for people only
        }
        assert!(seen.insert(&column.name), "{}: column {} twice", file.display(), column.name);
        let column_type = column_type(&column.column_type)
            .unwrap_or_else(|other| panic!("{}: column {}: unknown type {other}", file.display(), column.name));
        let _ = writeln!(
            code,
            "    ColumnSpec {{ name: {:?}, column_type: {column_type}, unit: {:?}, nullable: {} }},",
            column.name, column.unit, column.nullable
        );
    }
    code.push_str("] },\n");
}

/// The Rust expression of a type; the name itself when there is no such type.
fn column_type(name: &str) -> Result<String, &str> {
    if let Some(item) = name.strip_prefix("list<").and_then(|rest| rest.strip_suffix('>')) {
        return match item.starts_with("list<") {
            true => Err(name),
            false => Ok(format!("ColumnType::List(&{})", column_type(item)?)),
        };
    }
    let variant = match name {
        "int32" => "Int32",
        "int64" => "Int64",
        "uint32" => "UInt32",
        "uint64" => "UInt64",
        "float64" => "Float64",
        "string" => "String",
        "binary" => "Binary",
        "bool" => "Bool",
        other => return Err(other),
    };
    Ok(format!("ColumnType::{variant}"))
}
