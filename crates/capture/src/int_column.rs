//! One integer column of a segment: pages of a dictionary's numbers while values repeat, of differences when they do not.

use bytes::Bytes;
use leadline_parquet::{bit_width, put_delta, put_dictionary, put_hybrid, put_page, Buffer, Int};
use parquet::basic::{BoundaryOrder, Type};
use parquet::basic::{Compression, Encoding};
use parquet::errors::Result;
use parquet::file::metadata::{ColumnChunkMetaData, ColumnIndexBuilder, OffsetIndexBuilder};
use parquet::file::page_index::column_index::ColumnIndexMetaData;
use parquet::file::page_index::offset_index::OffsetIndexMetaData;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use crate::dictionary::Dictionary;

/// Buffers that columns take turns to use.
#[derive(Default)]
pub(crate) struct Scratch {
    numbers: Vec<u32>,
    encoded: Buffer,
}

/// The column chunk being made. Widened to 64 bits in memory, stored as `wide` says. Not compressed: what is left after
/// encoding is mostly noise, of which the quickest zstd takes 3 to 12 % away for a third of the CPU.
pub(crate) struct IntColumn {
    descriptor: ColumnDescPtr,
    /// Stored with 64 bits, else with 32.
    wide: bool,
    dictionary: Dictionary,
    /// Values repeat too little in this segment: the dictionary is closed.
    deltas: bool,
    /// Numbers of the dictionary were used.
    has_numbers: bool,
    /// Data pages, each with its header.
    pages: Vec<u8>,
    size: usize,
    values: usize,
    /// What the page index says of each of `pages`.
    index: Vec<PageEntry>,
}

/// One data page: its place within the chunk's pages, its bytes with the header, its rows, least and greatest value.
struct PageEntry {
    at: usize,
    bytes: usize,
    rows: usize,
    least: i64,
    greatest: i64,
}

/// A finished chunk and its part of the page index.
pub(crate) struct Chunk {
    pub(crate) metadata: ColumnChunkMetaData,
    pub(crate) columns: ColumnIndexMetaData,
    pub(crate) offsets: OffsetIndexMetaData,
}

impl IntColumn {
    pub(crate) fn new(descriptor: ColumnDescPtr, wide: bool) -> IntColumn {
        IntColumn {
            descriptor,
            wide,
            dictionary: Dictionary::new(),
            deltas: false,
            has_numbers: false,
            pages: Vec::new(),
            size: 0,
            values: 0,
            index: Vec::new(),
        }
    }

    /// Starts a new chunk; keeps the memory of the last.
    pub(crate) fn clear(&mut self) {
        self.dictionary.clear();
        (self.deltas, self.has_numbers, self.size, self.values) = (false, false, 0, 0);
        self.pages.clear();
        self.index.clear();
    }

    /// Appends one data page.
    pub(crate) fn put_page<T: Int>(&mut self, values: &[T], scratch: &mut Scratch) -> Result<()> {
        scratch.encoded.truncate(0);
        let encoding = if self.put_numbers(values, scratch) {
            Encoding::RLE_DICTIONARY
        } else {
            put_delta(values, self.wide, &mut scratch.encoded);
            Encoding::DELTA_BINARY_PACKED
        };
        let body = scratch.encoded.bytes();
        let at = self.pages.len();
        self.size += put_page(Bytes::copy_from_slice(body), body.len(), values.len(), encoding, &mut self.pages)?;
        self.values += values.len();
        let wide = values.iter().map(|v| v.wide());
        let (least, greatest) = wide.fold((i64::MAX, i64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        self.index.push(PageEntry { at, bytes: self.pages.len() - at, rows: values.len(), least, greatest });
        Ok(())
    }

    /// Encodes a page as numbers of the dictionary; false when its values are too many to be worth it.
    fn put_numbers<T: Int>(&mut self, values: &[T], scratch: &mut Scratch) -> bool {
        if self.deltas {
            return false;
        }
        // Every eighth value new: from there on differences are smaller than numbers and the values they stand for.
        let limit = self.dictionary.values().len() + values.len() / 8 + 8;
        scratch.numbers.clear();
        if !self.dictionary.number_all(values, limit, &mut scratch.numbers) {
            self.deltas = true;
            return false;
        }
        self.has_numbers = true;
        let width = bit_width(self.dictionary.values().len() as u64 - 1);
        scratch.encoded.put([width as u8], 1);
        put_hybrid(&scratch.numbers, width, &mut scratch.encoded);
        true
    }

    /// Appends the whole chunk to a file, and says where it is and what its pages hold.
    pub(crate) fn finish(&mut self, scratch: &mut Scratch, file: &mut Vec<u8>) -> Result<Chunk> {
        let start = file.len();
        let mut encodings = Vec::new();
        if self.has_numbers {
            self.put_dictionary(scratch, file)?;
            encodings.extend([Encoding::PLAIN, Encoding::RLE_DICTIONARY]);
        }
        if self.deltas {
            encodings.push(Encoding::DELTA_BINARY_PACKED);
        }
        let data_at = file.len();
        file.extend_from_slice(&self.pages);
        let metadata = ColumnChunkMetaData::builder(self.descriptor.clone())
            .set_statistics(self.statistics())
            .set_encodings(encodings)
            .set_compression(Compression::UNCOMPRESSED)
            .set_num_values(self.values as i64)
            .set_dictionary_page_offset(self.has_numbers.then_some(start as i64))
            .set_data_page_offset(data_at as i64)
            .set_total_compressed_size((file.len() - start) as i64)
            .set_total_uncompressed_size(self.size as i64)
            .build()?;
        let (columns, offsets) = self.page_index(data_at)?;
        Ok(Chunk { metadata, columns, offsets })
    }

    fn statistics(&self) -> Statistics {
        let least = self.index.iter().map(|page| page.least).min();
        let greatest = self.index.iter().map(|page| page.greatest).max();
        if self.wide {
            Statistics::int64(least, greatest, None, Some(0), false)
        } else {
            // An unsigned value keeps its bits; the column's logical type says how they compare.
            Statistics::int32(least.map(|v| v as i32), greatest.map(|v| v as i32), None, Some(0), false)
        }
    }

    /// data_at: where the data pages begin in the file.
    fn page_index(&self, data_at: usize) -> Result<(ColumnIndexMetaData, OffsetIndexMetaData)> {
        let mut columns = ColumnIndexBuilder::new(if self.wide { Type::INT64 } else { Type::INT32 });
        let mut offsets = OffsetIndexBuilder::new();
        for page in &self.index {
            columns.append(false, self.stored(page.least), self.stored(page.greatest), 0);
            offsets.append_row_count(page.rows as i64);
            offsets.append_offset_and_size((data_at + page.at) as i64, page.bytes as i32);
        }
        let mut pairs = self.index.iter().zip(self.index.iter().skip(1));
        if pairs.all(|(page, next)| page.least <= next.least && page.greatest <= next.greatest) {
            columns.set_boundary_order(BoundaryOrder::ASCENDING);
        }
        Ok((columns.build()?, offsets.build()))
    }

    /// A value as the file has it.
    fn stored(&self, value: i64) -> Vec<u8> {
        let bytes = value.to_le_bytes();
        bytes[..if self.wide { 8 } else { 4 }].to_vec()
    }

    fn put_dictionary(&mut self, scratch: &mut Scratch, file: &mut Vec<u8>) -> Result<()> {
        let values = self.dictionary.values();
        scratch.encoded.truncate(0);
        for value in values {
            scratch.encoded.put(value.to_le_bytes(), if self.wide { 8 } else { 4 });
        }
        let body = scratch.encoded.bytes();
        self.size += put_dictionary(Bytes::copy_from_slice(body), body.len(), values.len(), file)?;
        Ok(())
    }
}
