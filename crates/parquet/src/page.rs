//! Pages and their headers, one behind the other in a column chunk.

use bytes::Bytes;
use parquet::basic::Encoding;
use parquet::column::page::{CompressedPage, Page, PageWriter};
use parquet::errors::Result;
use parquet::file::writer::{SerializedPageWriter, TrackedWrite};

/// Appends a data page of so many values, nulls among them, to `out`. `body` is as the file has it, packed or not, `size` its
/// bytes before it was packed. Gives the bytes of header and unpacked body.
///
/// # Errors
/// When the header cannot be written, which memory never refuses.
pub fn put_page(body: Bytes, size: usize, values: usize, encoding: Encoding, out: &mut Vec<u8>) -> Result<usize> {
    let page = Page::DataPage {
        buf: body,
        num_values: values as u32,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    put(page, size, out)
}

/// Appends a page with the values of a dictionary; otherwise as [`put_page`].
///
/// # Errors
/// As those of [`put_page`].
pub fn put_dictionary(body: Bytes, size: usize, values: usize, out: &mut Vec<u8>) -> Result<usize> {
    let (num_values, encoding) = (values as u32, Encoding::PLAIN);
    put(Page::DictionaryPage { buf: body, num_values, encoding, is_sorted: false }, size, out)
}

fn put(page: Page, size: usize, out: &mut Vec<u8>) -> Result<usize> {
    let mut sink = TrackedWrite::new(out);
    let mut writer = SerializedPageWriter::new(&mut sink);
    let written = writer.write_page(CompressedPage::new(page, size))?;
    writer.close()?;
    Ok(written.uncompressed_size)
}
