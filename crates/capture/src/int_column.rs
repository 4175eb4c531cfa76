//! One integer column of a segment: pages of a dictionary's numbers while values repeat, of differences when they do not.

use bytes::Bytes;
use leadline_parquet::{bit_width, put_delta, put_dictionary, put_hybrid, put_page, Buffer, Int};
use parquet::basic::{Compression, Encoding};
use parquet::errors::Result;
use parquet::file::metadata::ColumnChunkMetaData;
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
        }
    }

    /// Starts a new chunk; keeps the memory of the last.
    pub(crate) fn clear(&mut self) {
        self.dictionary.clear();
        (self.deltas, self.has_numbers, self.size, self.values) = (false, false, 0, 0);
        self.pages.clear();
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
        self.size += put_page(Bytes::copy_from_slice(body), body.len(), values.len(), encoding, &mut self.pages)?;
        self.values += values.len();
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

    /// Appends the whole chunk to a file, and says where it is.
    pub(crate) fn finish(&mut self, scratch: &mut Scratch, file: &mut Vec<u8>) -> Result<ColumnChunkMetaData> {
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
        ColumnChunkMetaData::builder(self.descriptor.clone())
            .set_encodings(encodings)
            .set_compression(Compression::UNCOMPRESSED)
            .set_num_values(self.values as i64)
            .set_dictionary_page_offset(self.has_numbers.then_some(start as i64))
            .set_data_page_offset(data_at as i64)
            .set_total_compressed_size((file.len() - start) as i64)
            .set_total_uncompressed_size(self.size as i64)
            .build()
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
