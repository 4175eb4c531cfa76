//! The table files as Rust sees them.

use arrow_schema::DataType;
use leadline_capture::{define, spec, specs, Kind, TableWriter, WriterOptions};

use crate::scratch::Scratch;

#[test]
fn every_table_is_found_by_its_name() {
    assert!(specs().len() > 20);
    for table in specs() {
        assert_eq!(spec(table.name).map(|found| found.name), Some(table.name));
        assert_eq!(table.schema().fields().len(), table.columns.len());
    }
    assert!(spec("no_such_table").is_none());
}

#[test]
fn schema_has_the_types_and_nulls_of_the_file() {
    let tick = spec("session_run").unwrap();
    assert_eq!(tick.kind, Kind::Table);
    let types: Vec<DataType> = tick.schema().fields().iter().take(5).map(|f| f.data_type().clone()).collect();
    assert_eq!(types, [DataType::Int64, DataType::Int32, DataType::Int32, DataType::Int32, DataType::UInt32]);
    assert!(tick.schema().fields().iter().all(|f| !f.is_nullable()));
    assert!(spec("session_delta").unwrap().schema().field_with_name("majflt").unwrap().is_nullable());
    assert_eq!(spec("db_time").unwrap().kind, Kind::View);
}

#[test]
fn a_table_that_is_defined_later_is_written_like_others() {
    let columns = [("ts", "int64", false), ("names", "list<string>", false), ("size", "float64", true)];
    define("of_another_engine", "ts", &columns).unwrap();
    define("of_another_engine", "ts", &columns).unwrap();
    let found = spec("of_another_engine").unwrap();
    assert_eq!((found.kind, found.clock, found.columns.len()), (Kind::Table, "ts", 3));
    assert_eq!(found.columns.get(1).unwrap().column_type.to_string(), "list<string>");
    let folder = Scratch::new();
    let writer = TableWriter::create(&folder.0, "of_another_engine", WriterOptions::default()).unwrap();
    assert_eq!(writer.spec().name, "of_another_engine");
}

#[test]
fn a_definition_that_does_not_fit_is_refused() {
    define("taken", "", &[("a", "int32", false)]).unwrap();
    let said =
        |name: &str, clock: &str, columns: &[(&str, &str, bool)]| define(name, clock, columns).unwrap_err().to_string();
    for (name, clock, columns) in [
        ("taken", "", &[("a", "int64", false)][..]), // other columns
        ("taken", "a", &[("a", "int32", false)]),    // another clock
        ("tick", "ts", &[("ts", "int64", false)]),   // a table of leadline
        ("db_time", "", &[("ts", "int64", false)]),  // a view of leadline
        ("../above", "", &[("a", "int32", false)]),  // no word: it is the name of a folder
        ("", "", &[("a", "int32", false)]),
        ("empty", "", &[]),
        ("twice", "", &[("a", "int32", false), ("a", "int32", false)]),
        ("unknown_type", "", &[("a", "int33", false)]),
        ("lists_of_lists", "", &[("a", "list<list<int32>>", false)]),
        ("no_clock", "ts", &[("a", "int64", false)]),
    ] {
        assert!(said(name, clock, columns).starts_with(&format!("table {name} cannot be defined")));
    }
    assert!(spec("empty").is_none());
}
