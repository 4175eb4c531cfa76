//! Turns the table files of `python/leadline/tables` and of each engine (`python/leadline/engines/*/tables`) into Rust constants,
//! so that a column is written down in one place only and a mistake in a table file is a build error.

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
    let mut files: Vec<PathBuf> = folders().iter().flat_map(|folder| table_files(folder)).collect();
    files.sort_by(|a, b| a.file_name().cmp(&b.file_name())); // by name, whichever folder they are in
    for pair in files.windows(2) {
        assert_ne!(pair[0].file_name(), pair[1].file_name(), "a table has one file");
    }

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

/// That of tables of any engine, and those of engines.
fn folders() -> Vec<PathBuf> {
    let package = Path::new("../../python/leadline");
    let engines = package.join("engines");
    println!("cargo::rerun-if-changed={}", engines.join("__init__.py").display()); // which engines there are
    let mut found = vec![package.join("tables")];
    found.extend(entries(&engines).into_iter().map(|engine| engine.join("tables")).filter(|folder| folder.is_dir()));
    found
}

fn table_files(folder: &Path) -> Vec<PathBuf> {
    println!("cargo::rerun-if-changed={}", folder.display());
    entries(folder).into_iter().filter(|path| path.extension().is_some_and(|e| e == "toml")).collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let listed = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    listed.map(|entry| entry.expect("a readable folder").path()).collect()
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
