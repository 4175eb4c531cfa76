//! Row groups and what the file says of them, so that a query over a few seconds reads only what it needs.

use std::fs::File;

use leadline_capture::{spec, BatchBuilder, TableWriter, Value, WriterOptions};
use parquet::file::metadata::{PageIndexPolicy, ParquetMetaData, ParquetMetaDataReader};
use parquet::file::statistics::Statistics;

use crate::scratch::Scratch;

const SECOND: i64 = 1_000_000_000;

/// A minute of rows, a batch for each second, in one segment.
fn written(table: &str, rows_per_second: i64) -> ParquetMetaData {
    let scratch = Scratch::new();
    let spec = spec(table).unwrap();
    let mut writer = TableWriter::create(&scratch.0, table, WriterOptions::default()).unwrap();
    for second in 0..60 {
        let mut builder = BatchBuilder::new(spec);
        for row in 0..rows_per_second {
            let ts = second * SECOND + row * (SECOND / rows_per_second);
            let values = spec.columns.iter().map(|c| match c.column_type.to_string().as_str() {
                _ if c.name == spec.clock => Value::Int(ts),
                "string" => Value::Text("vmstat.pgfault"),
                "float64" => Value::Float(0.5),
                _ => Value::Int(row % 7),
            });
            builder.append(&values.collect::<Vec<_>>()).unwrap();
        }
        writer.write(&builder.finish().unwrap()).unwrap();
    }
    writer.close().unwrap();
    let file = File::open(scratch.0.join(table).join("000001.parquet")).unwrap();
    ParquetMetaDataReader::new().with_page_index_policy(PageIndexPolicy::Required).parse_and_finish(&file).unwrap()
}

/// Least and greatest ts of each row group.
fn times(metadata: &ParquetMetaData, clock: usize) -> Vec<(i64, i64)> {
    let of = |s: &Statistics| match s {
        Statistics::Int64(s) => (*s.min_opt().unwrap(), *s.max_opt().unwrap()),
        other => panic!("{other}"),
    };
    metadata.row_groups().iter().map(|g| of(g.column(clock).statistics().unwrap())).collect()
}

#[test]
fn row_groups_are_bounded_in_time_and_say_which() {
    for table in ["tick", "host_stat"] {
        let clock = spec(table).unwrap().columns.iter().position(|c| c.name == "ts").unwrap();
        let metadata = written(table, 10_000);
        let times = times(&metadata, clock);
        assert_eq!(times.len(), 12, "{table}");
        for (at, &(least, greatest)) in times.iter().enumerate() {
            assert_eq!(least, at as i64 * 5 * SECOND, "{table}");
            assert!(greatest - least < 5 * SECOND, "{table}");
        }
    }
}

#[test]
fn few_rows_are_one_row_group() {
    for table in ["tick", "host_stat"] {
        assert_eq!(written(table, 100).num_row_groups(), 1, "{table}");
    }
}

#[test]
fn the_page_index_names_every_page_of_every_column() {
    for table in ["tick", "host_stat"] {
        let metadata = written(table, 10_000);
        let (columns, offsets) = (metadata.column_index().unwrap(), metadata.offset_index().unwrap());
        for (group, (columns, offsets)) in metadata.row_groups().iter().zip(columns.iter().zip(offsets)) {
            for (chunk, (column, offset)) in group.columns().iter().zip(columns.iter().zip(offsets)) {
                let pages = offset.page_locations();
                assert_eq!(column.num_pages() as usize, pages.len());
                assert!(pages.len() >= 50_000 / 16_384, "{table}: {}", pages.len());
                assert_eq!(pages[0].first_row_index, 0);
                let (start, length) = chunk.byte_range();
                let end = pages.last().map(|p| p.offset + i64::from(p.compressed_page_size)).unwrap();
                assert_eq!(end as u64, start + length, "{table}: the last page ends with its chunk");
                assert_eq!(pages[0].offset, chunk.data_page_offset());
            }
        }
    }
}
