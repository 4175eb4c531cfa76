//! The table files as Rust sees them.

use arrow_schema::DataType;
use leadline_capture::{spec, specs, Kind};

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
