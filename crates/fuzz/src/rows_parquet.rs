//! Any pages of a table as Parquet, read again by the reader of others.

use std::fs::File;

use leadline_rows::export::{export, provenance_values, Which};
use leadline_rows::{Beside, Row, RowScan};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

use crate::choice;
use crate::data_dir;
use crate::folder::Folder;

/// A data directory as it should be, with a table whose pages are any bytes: the file has the rows that a scan gives, and their values.
pub fn rows_parquet(data: &[u8]) -> &'static str {
    let (how, rest) = choice(data);
    let (dead, threads) = (how >= 128, 1 + how / 64 % 2);
    let files = data_dir::files_with_pages(13 + how as u32 % 6, rest);
    let folder = Folder::with(files.iter().map(|(name, bytes)| (*name, &bytes[..])));
    let open = || RowScan::open(&folder.0, Some("t"), Some("d"), dead).expect("a catalog as it should be");
    let (out, mut scan, mut exported) = (folder.0.join("t.parquet"), open(), open());
    let mut rows: Vec<Row> = Vec::new();
    let mut scan_to_end = || -> Result<(), leadline_rows::Error> {
        while let Some(mut some) = scan.next_rows(1000)? {
            rows.append(&mut some);
        }
        Ok(())
    };
    let scanned = scan_to_end();
    let written = export(&mut exported, &out, Which::All, threads, &mut |done, all| {
        assert!(done <= all, "block {done} of {all}");
        true
    });
    assert!(!folder.0.join("t.parquet.partial").exists(), "a part of a file is left");
    let written = match (scanned, written) {
        (Ok(()), Ok(written)) => written,
        (Err(_), Err(_)) => {
            assert!(!out.exists(), "a file of a failed export is left");
            return "unreadable";
        }
        (scanned, written) => panic!("{scanned:?} but {written:?}"),
    };
    assert_eq!(written.rows, rows.len() as u64);
    assert_eq!(exported.unread, scan.unread);
    assert_eq!(
        (exported.beside(), exported.beside() == Beside::Status),
        (scan.beside(), !dead && scan.unread.unknown > 0)
    );
    let file = SerializedFileReader::new(File::open(&out).expect("the file")).expect("a file of Parquet");
    assert_eq!(file.metadata().file_metadata().num_rows(), rows.len() as i64);
    let mut count = 0;
    for (row, found) in rows.iter().zip(file.get_row_iter(None).expect("its columns")) {
        let found = found.expect("a row");
        let more = provenance_values(&scan, row);
        let texts = more.iter().map(Some).chain(row.values.iter().map(Option::as_ref));
        assert_eq!(found.len(), more.len() + row.values.len());
        for ((name, field), text) in found.get_column_iter().zip(texts) {
            assert!(agrees(field, text.map(String::as_str)), "{name} of {:?}: {field:?} is not {text:?}", row.place);
        }
        count += 1;
    }
    assert_eq!(count, rows.len());
    match (count, written.as_text.is_empty()) {
        (0, _) => "no rows",
        (_, true) => "rows",
        (_, false) => "as text",
    }
}

/// Whether a value in the file is the one that is printed. Of types that the two print differently only whether there is one.
fn agrees(field: &Field, text: Option<&str>) -> bool {
    let Some(text) = text else { return *field == Field::Null };
    match field {
        Field::Null => false,
        Field::Str(value) => value == text,
        Field::Bool(value) => text == if *value { "t" } else { "f" },
        Field::Short(value) => text == value.to_string(),
        Field::Int(value) => text == value.to_string(),
        Field::Long(value) => text == value.to_string(),
        Field::UInt(value) => text == value.to_string(),
        Field::ULong(value) => text == value.to_string(),
        Field::Float(value) => text.parse() == Ok(*value) || value.is_nan(),
        Field::Double(value) => text.parse() == Ok(*value) || value.is_nan(),
        _ => true,
    }
}
