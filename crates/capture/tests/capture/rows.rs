//! What goes in comes out: every table, every encoding, extreme values.

use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, UInt32Array};
use arrow_schema::SchemaRef;
use leadline_capture::{
    spec, specs, BatchBuilder, ColumnType, Error, Kind, TableSpec, TableWriter, Value, WriterOptions,
};

use crate::scratch::{read, Scratch};
use leadline_testdata::Random;

/// Asserts that a segment has exactly these rows under the table's types.
fn assert_rows(segment: &std::path::Path, schema: &SchemaRef, written: &[RecordBatch]) {
    let found = read(segment);
    assert_eq!(found[0].schema().fields(), schema.fields());
    let written: Vec<_> = written.iter().filter(|batch| batch.num_rows() > 0).collect();
    let rows = |batches: &[&RecordBatch]| batches.iter().map(|b| b.num_rows()).sum::<usize>();
    assert_eq!(rows(&found.iter().collect::<Vec<_>>()), rows(&written));
    let mut at = 0;
    for batch in written {
        let mut taken = 0;
        while taken < batch.num_rows() {
            let (part, offset) = part_at(&found, at);
            let count = (batch.num_rows() - taken).min(part.num_rows() - offset);
            assert_eq!(part.slice(offset, count).columns(), batch.slice(taken, count).columns(), "from row {at}");
            taken += count;
            at += count;
        }
    }
}

/// The batch that holds a row, and where in it.
fn part_at(batches: &[RecordBatch], row: usize) -> (&RecordBatch, usize) {
    let mut before = 0;
    for batch in batches {
        if row < before + batch.num_rows() {
            return (batch, row - before);
        }
        before += batch.num_rows();
    }
    panic!("no row {row}");
}

fn random_value<'a>(column_type: ColumnType, nullable: bool, random: &mut Random, text: &'a str) -> Value<'a> {
    if nullable && random.below(4) == 0 {
        return Value::Null;
    }
    match column_type {
        ColumnType::Int32 => Value::Int(i64::from(random.next() as i32)),
        ColumnType::UInt32 => Value::Int(i64::from(random.next() as u32)),
        ColumnType::Int64 => Value::Int(random.next() as i64),
        ColumnType::Float64 => Value::Float(random.next() as f64 / 3.0),
        ColumnType::UInt64 => Value::UInt(random.next()),
        ColumnType::Binary => Value::Bytes(&text.as_bytes()[..random.below(text.len() as u64) as usize]),
        ColumnType::List(_) => Value::List(&[]),
        ColumnType::Bool => Value::Bool(random.below(2) == 0),
        ColumnType::String => Value::Text(&text[..random.below(text.len() as u64) as usize]),
    }
}

fn random_batch(spec: &'static TableSpec, rows: usize, random: &mut Random) -> RecordBatch {
    let text = "select $1 from t where a = $2 and b < $3 order by 1, 2, 3";
    let mut builder = BatchBuilder::new(spec);
    for _ in 0..rows {
        let row: Vec<Value<'_>> =
            spec.columns.iter().map(|c| random_value(c.column_type, c.nullable, random, text)).collect();
        builder.append(&row).unwrap();
    }
    builder.finish().unwrap()
}

#[test]
fn every_table_comes_back_as_written() {
    let mut random = Random(1);
    for spec in specs().iter().filter(|s| s.kind == Kind::Table) {
        let scratch = Scratch::new();
        let mut writer = TableWriter::create(&scratch.0, spec.name, WriterOptions::default()).unwrap();
        let batches = [0, 1, 37, 2500, 9].map(|rows| random_batch(spec, rows, &mut random));
        batches.iter().for_each(|batch| writer.write(batch).unwrap());
        let stats = writer.close().unwrap();
        assert_eq!((stats.rows, stats.segments), (2547, 1), "{}", spec.name);
        let segment = scratch.0.join(spec.name).join("000001.parquet");
        assert_eq!(stats.bytes, segment.metadata().unwrap().len());
        assert_rows(&segment, &spec.schema(), &batches);
    }
}

/// Columns of session_run whose values follow different patterns, chosen to meet each way of encoding and its edges.
fn pattern(kind: u64, rows: usize, random: &mut Random) -> Vec<i64> {
    let mut value = random.next() as i64;
    let mut left = 0u64;
    (0..rows as i64)
        .map(|row| match kind {
            0 => 7,
            1 => row / 64,
            2 => row % 64,
            3 => random.next() as i64,
            4 => [i64::MIN, i64::MAX, 0, -1, 1][random.below(5) as usize],
            5 => random.below(3) as i64,
            6 => 1_770_000_000_000_000 + row * 15 + random.below(2000) as i64,
            7 => {
                if left == 0 {
                    left = 1 + random.below(40);
                    value = random.next() as i64;
                }
                left -= 1;
                value
            }
            8 if row < rows as i64 / 2 => random.below(5) as i64, // starts with few values, goes on with many
            8 => random.next() as i64,
            _ => (random.next() >> random.below(64)) as i64,
        })
        .collect()
}

#[test]
fn patterns_of_integers_come_back_as_written() {
    let mut random = Random(2);
    let spec = spec("session_run").unwrap();
    let scratch = Scratch::new();
    let mut writer = TableWriter::create(&scratch.0, spec.name, WriterOptions::default()).unwrap();
    // One writer for all, so that nothing of a segment leaks into the next.
    for (round, rows) in [40_000, 1, 2, 7, 8, 9, 127, 128, 129, 2048, 16_384, 16_385, 33_000].into_iter().enumerate() {
        let column = |(at, c): (usize, &leadline_capture::ColumnSpec)| -> ArrayRef {
            let values = pattern((at + round) as u64 % 10, rows, &mut random);
            match c.column_type {
                ColumnType::Int64 => Arc::new(Int64Array::from(values)),
                ColumnType::Int32 => Arc::new(values.iter().map(|v| Some(*v as i32)).collect::<Int32Array>()),
                _ => Arc::new(values.iter().map(|v| Some(*v as u32)).collect::<UInt32Array>()),
            }
        };
        // collect() makes nullable arrays without nulls: the schema, not the array, says what is nullable
        let batch = RecordBatch::try_new(spec.schema(), spec.columns.iter().enumerate().map(column).collect()).unwrap();
        writer.write(&batch).unwrap();
        writer.roll().unwrap();
        let segment = scratch.0.join(spec.name).join(format!("{:06}.parquet", round + 1));
        assert_rows(&segment, &spec.schema(), &[batch]);
    }
    writer.close().unwrap();
}

#[test]
fn a_batch_of_another_table_is_refused_and_harms_nothing() {
    let scratch = Scratch::new();
    let mut random = Random(3);
    let mut writer = TableWriter::create(&scratch.0, "tick", WriterOptions::default()).unwrap();
    let good = random_batch(spec("tick").unwrap(), 10, &mut random);
    let bad = random_batch(spec("session_run").unwrap(), 10, &mut random);
    writer.write(&good).unwrap();
    let error = writer.write(&bad).unwrap_err();
    assert!(matches!(&error, Error::Schema { table: "tick", detail } if detail.contains("ticks")), "{error}");
    assert_eq!(writer.close().unwrap().rows, 10);
}

#[test]
fn a_row_that_does_not_fit_is_named_and_leaves_no_trace() {
    let mut builder = BatchBuilder::new(spec("buffer_scan").unwrap());
    let good =
        [Value::Int(1), Value::Text("all"), Value::Int(2), Value::Int(3), Value::Int(4), Value::Int(5), Value::Int(0)];
    builder.append(&good).unwrap();
    let bad = [
        (1, Value::Int(1), "expected string"),
        (4, Value::Int(1 << 31), "out of range for int32"),
        (6, Value::Null, "not nullable"),
        (0, Value::Float(1.0), "expected int64, got a float"),
    ];
    for (at, value, says) in bad {
        let mut row = good;
        row[at] = value;
        let error = builder.append(&row).unwrap_err();
        let name = spec("buffer_scan").unwrap().columns[at].name;
        assert!(
            matches!(&error, Error::Row { column, row: 1, detail, .. } if *column == name && detail.contains(says)),
            "{error}"
        );
    }
    assert!(matches!(builder.append(&good[..3]), Err(Error::Row { column: "", row: 1, .. })));
    assert_eq!(builder.finish().unwrap().num_rows(), 1);
}
