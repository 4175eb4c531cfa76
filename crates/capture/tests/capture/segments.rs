//! Names and numbers of segments.

use std::fs;

use arrow_array::cast::AsArray;

use leadline_capture::{spec, BatchBuilder, Error, StorageOp, TableWriter, Value, WriterOptions};

use crate::scratch::{files, read, Scratch};

fn write_one(writer: &mut TableWriter, value: i64) {
    let mut builder = BatchBuilder::new(spec("host_stat").unwrap());
    builder.append(&[Value::Int(value), Value::Text("vmstat.pgscan_direct"), Value::Int(1)]).unwrap();
    writer.write(&builder.finish().unwrap()).unwrap();
}

#[test]
fn numbers_go_on_after_what_is_there() {
    let scratch = Scratch::new();
    for fsync in [false, true] {
        let mut writer =
            TableWriter::create(&scratch.0, "host_stat", WriterOptions { fsync, ..WriterOptions::default() }).unwrap();
        write_one(&mut writer, 1);
        writer.roll().unwrap();
        writer.roll().unwrap(); // nothing to write: no segment
        write_one(&mut writer, 2);
        assert_eq!(writer.close().unwrap().segments, 2);
    }
    let expected: Vec<String> = (1..=4).map(|n| format!("{n:06}.parquet")).collect();
    assert_eq!(files(&scratch.0, "host_stat"), expected);
}

#[test]
fn two_writers_of_a_table_do_not_overwrite_each_other() {
    let scratch = Scratch::new();
    let mut writers = [1, 2].map(|_| TableWriter::create(&scratch.0, "host_stat", WriterOptions::default()).unwrap());
    for writer in &mut writers {
        write_one(writer, 1);
        writer.roll().unwrap();
    }
    assert_eq!(files(&scratch.0, "host_stat"), ["000001.parquet", "000002.parquet"]);
}

#[test]
fn writers_that_race_for_a_number_lose_no_segment() {
    const WRITERS: usize = 4;
    const SEGMENTS: usize = 100;
    let scratch = Scratch::new();
    let start = std::sync::Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        for number in 0..WRITERS {
            let (folder, start) = (&scratch.0, &start);
            scope.spawn(move || {
                let mut writer = TableWriter::create(folder, "host_stat", WriterOptions::default()).unwrap();
                start.wait();
                for segment in 0..SEGMENTS {
                    write_one(&mut writer, (number * SEGMENTS + segment) as i64);
                    writer.roll().unwrap();
                }
            });
        }
    });
    let names = files(&scratch.0, "host_stat");
    let expected: Vec<String> = (1..=WRITERS * SEGMENTS).map(|n| format!("{n:06}.parquet")).collect();
    assert_eq!(names, expected, "each has a number of its own, and no temporary file is left");
    let mut found: Vec<i64> = Vec::new();
    for name in names {
        let batches = read(&scratch.0.join("host_stat").join(name));
        found.push(batches[0].column(0).as_primitive::<arrow_array::types::Int64Type>().value(0));
    }
    found.sort_unstable();
    assert_eq!(found, (0..(WRITERS * SEGMENTS) as i64).collect::<Vec<_>>());
}

#[test]
fn an_empty_table_makes_no_file() {
    let scratch = Scratch::new();
    let writer = TableWriter::create(&scratch.0, "host_stat", WriterOptions::default()).unwrap();
    assert_eq!(writer.close().unwrap().segments, 0);
    assert!(files(&scratch.0, "host_stat").is_empty());
}

#[test]
fn what_is_no_stored_table_is_refused() {
    let scratch = Scratch::new();
    let create = |table| TableWriter::create(&scratch.0, table, WriterOptions::default()).map(|_| ());
    assert!(matches!(create("no_such"), Err(Error::UnknownTable { is_view: false, .. })));
    assert!(matches!(create("db_time"), Err(Error::UnknownTable { is_view: true, .. })));
}

#[test]
fn a_folder_that_vanished_is_an_error_and_the_writer_lives_on() {
    let scratch = Scratch::new();
    let mut writer = TableWriter::create(&scratch.0, "host_stat", WriterOptions::default()).unwrap();
    write_one(&mut writer, 1);
    fs::remove_dir(scratch.0.join("host_stat")).unwrap();
    let error = writer.roll().unwrap_err();
    assert!(
        matches!(&error, Error::Storage { op: StorageOp::Create, source, .. } if source.raw_os_error() == Some(libc::ENOENT))
    );
    fs::create_dir(scratch.0.join("host_stat")).unwrap();
    write_one(&mut writer, 2);
    assert_eq!(writer.close().unwrap().rows, 1);
    assert_eq!(read(&scratch.0.join("host_stat/000001.parquet"))[0].num_rows(), 1);
}

/// All values of the first column, file by file.
fn values(scratch: &Scratch, table: &str) -> Vec<Vec<i64>> {
    let column = |name: String| -> Vec<i64> {
        let batches = read(&scratch.0.join(table).join(name));
        let times = batches.iter().map(|b| b.column(0).as_primitive::<arrow_array::types::Int64Type>());
        times.flat_map(|column| column.values().to_vec()).collect()
    };
    files(&scratch.0, table).into_iter().map(column).collect()
}

#[test]
fn a_growing_segment_has_each_row_once_after_each_roll() {
    // of either way to write a table
    for table in ["host_stat", "tick"] {
        let scratch = Scratch::new();
        let options = WriterOptions { grow_to: 10_000, ..WriterOptions::default() };
        let mut writer = TableWriter::create(&scratch.0, table, options).unwrap();
        let row = |value| match table {
            "host_stat" => vec![Value::Int(value), Value::Text("vmstat.pgscan_direct"), Value::Int(1)],
            _ => vec![Value::Int(value); 10],
        };
        for roll in 0..40 {
            let mut builder = BatchBuilder::new(spec(table).unwrap());
            (0..10).for_each(|n| builder.append(&row(roll * 10 + n)).unwrap());
            writer.write(&builder.finish().unwrap()).unwrap();
            writer.roll().unwrap();
            let found = values(&scratch, table);
            assert_eq!(found.concat(), (0..(roll + 1) * 10).collect::<Vec<i64>>(), "{table}");
            assert!(found.len() <= 1 + roll as usize / 2, "{table}: {} files", found.len());
            let sizes = files(&scratch.0, table)
                .iter()
                .map(|f| fs::metadata(scratch.0.join(table).join(f)).unwrap().len())
                .sum();
            assert_eq!((writer.stats().bytes, writer.stats().segments as usize), (sizes, found.len()));
        }
        assert!(values(&scratch, table).len() > 1, "{table}: a full segment grows no more");
        let before = writer.stats();
        let stats = writer.close().unwrap();
        assert_eq!((stats.rows, stats.segments), (400, before.segments));
        assert_eq!(values(&scratch, table).concat().len(), 400);
    }
}

#[test]
fn a_growing_segment_ends_after_so_many_rolls() {
    let scratch = Scratch::new();
    let mut writer = TableWriter::create(&scratch.0, "host_stat", WriterOptions::default().growing(true)).unwrap();
    for roll in 0..81 {
        let mut builder = BatchBuilder::new(spec("host_stat").unwrap());
        builder.append(&[Value::Int(roll), Value::Text("vmstat.pgscan_direct"), Value::Int(1)]).unwrap();
        writer.write(&builder.finish().unwrap()).unwrap();
        writer.roll().unwrap();
    }
    assert_eq!(writer.close().unwrap().segments, 3);
    assert_eq!(values(&scratch, "host_stat"), [(0..40).collect(), (40..80).collect(), vec![80]]);
}
