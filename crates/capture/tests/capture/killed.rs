//! SIGKILL at any moment leaves whole segments only.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch};
use leadline_capture::{spec, ColumnType, TableWriter, WriterOptions};

use crate::scratch::{files, read, Scratch};

const FOLDER: &str = "LEADLINE_TEST_KILLED_FOLDER";
const ROWS: usize = 3000;

/// Rows whose values all tell the number of their segment.
fn batch(segment: usize) -> RecordBatch {
    let spec = spec("tick").unwrap();
    let column = |c: &leadline_capture::ColumnSpec| -> ArrayRef {
        match c.column_type {
            ColumnType::Int64 => Arc::new(Int64Array::from(vec![segment as i64; ROWS])),
            _ => Arc::new(Int32Array::from(vec![segment as i32; ROWS])),
        }
    };
    RecordBatch::try_new(spec.schema(), spec.columns.iter().map(column).collect()).unwrap()
}

/// Not a test: what the killed process does. It writes segments until it is killed.
#[test]
#[ignore = "started by a_killed_writer_leaves_whole_segments"]
fn writer_to_be_killed() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let mut writer = TableWriter::create(&PathBuf::from(folder), "tick", WriterOptions::default()).unwrap();
    for segment in 1.. {
        writer.write(&batch(segment)).unwrap();
        writer.roll().unwrap();
    }
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn segments(folder: &Path) -> usize {
    if !folder.join("tick").is_dir() {
        return 0;
    }
    files(folder, "tick").iter().filter(|name| name.ends_with(".parquet")).count()
}

#[test]
fn a_killed_writer_leaves_whole_segments() {
    for wanted in [1, 2, 10, 40] {
        let scratch = Scratch::new();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed::writer_to_be_killed", "--ignored"])
            .env(FOLDER, &scratch.0)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let child = Killed(child);
        let deadline = Instant::now() + Duration::from_secs(60);
        while segments(&scratch.0) < wanted {
            assert!(Instant::now() < deadline, "no {wanted} segments");
            std::thread::yield_now();
        }
        drop(child); // SIGKILL
        let names = files(&scratch.0, "tick");
        let whole: Vec<_> = names.iter().filter(|name| name.ends_with(".parquet")).collect();
        assert!(whole.len() >= wanted && names.len() - whole.len() <= 1, "{names:?}");
        for (number, name) in (1i64..).zip(&whole) {
            assert_eq!(**name, format!("{number:06}.parquet"));
            let rows = read(&scratch.0.join("tick").join(name));
            assert_eq!(rows[0].columns(), batch(number as usize).columns());
        }
    }
}
