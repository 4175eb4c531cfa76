//! One column of a row group: values from the rows' own bytes to the pages of a Parquet column chunk.
//!
//! | values | encoding |
//! |---|---|
//! | whole numbers, days, times, decimals of up to 18 digits | DELTA_BINARY_PACKED |
//! | ctid | DELTA_BYTE_ARRAY |
//! | strings most of which occur again | dictionary |
//! | everything else | PLAIN |
//!
//! Pages are packed (LZ4_RAW) in chunks whose first values lose half of their bytes by it.

use leadline_parquet::{bit_width, put_delta, put_dictionary, put_hybrid, put_page, Buffer};
use parquet::basic::{Compression, Encoding, Type};
use parquet::errors::Result as ParquetResult;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::statistics::Statistics;
use parquet::schema::types::ColumnDescPtr;

use super::bits::Bits;
use super::columns::Kind;
use super::dictionary::{repeats, string, Dictionary};
use super::packed::{lend, pack, packs_well, Spare};
use super::tids::Tids;
use crate::cells::{ColumnOf, Place, Value};
use crate::error::Result;
use crate::value::{typed, Printer, Text, Types};

/// Most values of a page, and bytes from which on it is ended.
const PAGE_ROWS: usize = 16_384;
const PAGE_BYTES: usize = 1 << 20;
/// Bytes left free before the values of a page, for the levels that come there once it is known which are null: one bit each.
const LEVELS: usize = 1 << 12;

/// Buffers that columns take turns to use.
#[derive(Default)]
pub(super) struct Scratch {
    numbers: Vec<u32>,
    body: Buffer,
    packed: Vec<u8>,
}

/// The chunk that is being made of a column.
pub(super) struct Chunk {
    kind: Kind,
    /// How a value is printed that is kept as text.
    printer: Option<Printer>,
    descriptor: ColumnDescPtr,
    /// A value came that does not fit. Null stands in its place, so the chunk must not be used.
    pub unfit: bool,
    // The page that is being made.
    present: Bits,
    values: Values,
    // The pages that are made.
    pages: Vec<u8>,
    spare: Spare,
    dictionary: Option<Dictionary>,
    /// None before the first page.
    compression: Option<Compression>,
    encodings: Vec<Encoding>,
    rows: usize,
    nulls: usize,
    /// Bytes before they were packed.
    size: usize,
    range: Option<(i64, i64)>,
    /// Whether strings mostly occur again; None as long as none were looked at.
    repeats: Option<bool>,
}

/// The values of a page, without nulls.
enum Values {
    Bits(Bits),
    Ints(Vec<i64>),
    /// As PLAIN has them, behind room for the levels.
    Bytes(Buffer),
    Tids(Tids),
}

/// A finished chunk; places in `about` count from its first byte.
pub(super) struct Made {
    pub dictionary: Vec<u8>,
    pub pages: Vec<u8>,
    pub about: ColumnChunkMetaData,
}

impl Chunk {
    pub(super) fn new(kind: Kind, printer: Option<Printer>, descriptor: ColumnDescPtr, spare: Spare) -> Chunk {
        let values = match (kind, descriptor.physical_type()) {
            (Kind::Bool, _) => Values::Bits(Bits::default()),
            (Kind::Tid, _) => Values::Tids(Tids::default()),
            (_, Type::INT32 | Type::INT64) => Values::Ints(Vec::new()),
            _ => Values::Bytes(behind_levels()),
        };
        Chunk {
            kind,
            printer,
            descriptor,
            unfit: false,
            present: Bits::default(),
            values,
            pages: spare.take(),
            spare,
            dictionary: None,
            compression: None,
            encodings: Vec::new(),
            rows: 0,
            nulls: 0,
            size: 0,
            range: None,
            repeats: None,
        }
    }

    /// About how many bytes it takes.
    pub(super) fn memory(&self) -> usize {
        let waiting = match &self.values {
            Values::Bits(bits) => bits.len(),
            Values::Ints(values) => 8 * values.len(),
            Values::Bytes(bytes) => bytes.len() - LEVELS,
            Values::Tids(tids) => 16 * tids.shared.len() + tids.rest.len(),
        };
        self.pages.len() + waiting + self.dictionary.as_ref().map_or(0, |d| 2 * d.plain.len())
    }

    /// Adds a column of some rows.
    pub(super) fn add(&mut self, types: &Types, column: ColumnOf<'_, '_>) -> Result<()> {
        match self.kind {
            Kind::Bool => self.bits(column)?,
            Kind::Int16 => {
                self.ints(column, |b| typed::fixed(b).map(|b| i16::from_le_bytes(b).into()))?;
            }
            Kind::Int32 => {
                self.ints(column, |b| typed::fixed(b).map(|b| i32::from_le_bytes(b).into()))?;
            }
            // What has no sign is stored with the same bits.
            Kind::UInt32 => self.ints(column, |b| typed::u32(b).map(|n| i64::from(n as i32)))?,
            Kind::Int64 | Kind::UInt64 => self.ints(column, |b| typed::fixed(b).map(i64::from_le_bytes))?,
            Kind::Date => self.ints(column, |b| typed::date(b).map(i64::from))?,
            Kind::Time => self.ints(column, typed::time)?,
            Kind::Timestamp | Kind::TimestampTz => self.ints(column, typed::timestamp)?,
            Kind::Decimal(precision, scale) if matches!(self.values, Values::Ints(_)) => {
                self.ints(column, |b| typed::decimal(b, precision, scale).map(|n| n as i64))?;
            }
            Kind::Decimal(precision, scale) => {
                let width = usize::try_from(self.descriptor.type_length()).unwrap_or(16);
                self.bytes(column, |b, out| {
                    let value = typed::decimal(b, precision, scale)?.to_be_bytes();
                    out.put_slice(value.get(value.len() - width..)?);
                    Some(())
                })?;
            }
            Kind::Float32 => self.bytes(column, fixed::<4>)?,
            Kind::Float64 => self.bytes(column, fixed::<8>)?,
            Kind::Uuid => self.bytes(column, fixed::<16>)?,
            Kind::Bytes => self.bytes(column, string)?,
            Kind::Plain => self.texts(column, |b, text| text.push_bytes(b))?,
            // Only the places of rows are of this kind, and they are no values of them.
            Kind::Tid => {}
            Kind::Text => {
                let Some(printer) = self.printer else { return Ok(()) };
                self.texts(column, |b, text| types.print(printer, b, text))?;
            }
        }
        Ok(())
    }

    fn bits(&mut self, column: ColumnOf<'_, '_>) -> Result<()> {
        let Values::Bits(values) = &mut self.values else { return Ok(()) };
        fill(column, &mut self.present, &mut self.unfit, |value| {
            typed::bool(value.bytes()?).map(|bit| values.push(u64::from(bit), 1))
        })
    }

    #[inline]
    fn ints(&mut self, column: ColumnOf<'_, '_>, read: impl Fn(&[u8]) -> Option<i64>) -> Result<()> {
        let Values::Ints(values) = &mut self.values else { return Ok(()) };
        // Room for all, so that no value asks for it.
        let before = values.len();
        values.resize(before + column.len(), 0);
        let mut room = values[before..].iter_mut();
        fill(column, &mut self.present, &mut self.unfit, |value| {
            read(value.bytes()?).and_then(|number| Some(*room.next()? = number))
        })?;
        let left = room.len();
        values.truncate(values.len() - left);
        Ok(())
    }

    /// `put` appends a value as PLAIN has it.
    #[inline]
    fn bytes(&mut self, column: ColumnOf<'_, '_>, mut put: impl FnMut(&[u8], &mut Buffer) -> Option<()>) -> Result<()> {
        let Values::Bytes(values) = &mut self.values else { return Ok(()) };
        fill(column, &mut self.present, &mut self.unfit, |value| put(value.bytes()?, values))
    }

    /// `print` adds a value to a text. What is said of a lost one is text too.
    #[inline]
    fn texts(&mut self, column: ColumnOf<'_, '_>, mut print: impl FnMut(&[u8], &mut Text)) -> Result<()> {
        let Values::Bytes(values) = &mut self.values else { return Ok(()) };
        let mut text = Text::behind(std::mem::take(values));
        let filled = fill(column, &mut self.present, &mut self.unfit, |value| {
            let at = text.len();
            text.push_str("\0\0\0\0");
            match value {
                Value::Bytes(b) => print(b, &mut text),
                Value::Lost(said) => text.push_str(said),
                Value::Null => {}
            }
            let len = u32::try_from(text.len() - at - 4).ok()?;
            text.put_at(at, len.to_le_bytes());
            Some(())
        });
        *values = text.into_buffer();
        filled
    }

    /// Adds a place, to a column of them.
    #[inline]
    pub(super) fn tid(&mut self, place: &Place) {
        if let Values::Tids(tids) = &mut self.values {
            tids.push(place);
            self.present.push(1, 1);
        }
    }

    /// Adds a text, to a column of them.
    pub(super) fn text(&mut self, text: &[u8]) {
        if let Values::Bytes(values) = &mut self.values {
            let _ = string(text, values);
            self.present.push(1, 1);
        }
    }

    /// Adds a whole number, to a column of them.
    pub(super) fn int(&mut self, number: i64) {
        if let Values::Ints(values) = &mut self.values {
            values.push(number);
            self.present.push(1, 1);
        }
    }

    /// Ends the page when it is large enough.
    pub(super) fn end_page_if_full(&mut self, scratch: &mut Scratch) -> ParquetResult<()> {
        let is_full = self.present.count >= PAGE_ROWS
            || matches!(&self.values, Values::Bytes(bytes) if bytes.len() >= PAGE_BYTES);
        if is_full {
            self.end_page(scratch)?;
        }
        Ok(())
    }

    fn end_page(&mut self, scratch: &mut Scratch) -> ParquetResult<()> {
        let rows = self.present.count;
        if rows == 0 {
            return Ok(());
        }
        let nulls = rows - self.present.ones;
        let mut body = std::mem::take(&mut scratch.body);
        self.present.levels(&mut body);
        self.present.clear();
        let (mut from, mut is_values) = (0, false);
        let mut encoding = Encoding::PLAIN;
        match &mut self.values {
            Values::Bits(bits) => {
                bits.put(&mut body);
                bits.clear();
            }
            Values::Ints(values) => {
                encoding = Encoding::DELTA_BINARY_PACKED;
                put_delta(values, self.descriptor.physical_type() == Type::INT64, &mut body);
                self.range = values.iter().fold(self.range, |range, n| {
                    let (least, most) = range.unwrap_or((*n, *n));
                    Some((least.min(*n), most.max(*n)))
                });
                values.clear();
            }
            Values::Tids(tids) => {
                encoding = Encoding::DELTA_BYTE_ARRAY;
                tids.put(&mut body);
            }
            Values::Bytes(bytes) => {
                let plain = &bytes.bytes()[LEVELS..];
                let is_strings = self.descriptor.physical_type() == Type::BYTE_ARRAY;
                let first = self.compression.is_none();
                if is_strings && first && *self.repeats.get_or_insert_with(|| repeats(plain)) {
                    self.dictionary = Some(Dictionary::default());
                }
                let numbers = &mut scratch.numbers;
                if let Some(count) = self.dictionary.as_mut().and_then(|d| d.number(plain, numbers).then_some(d.count))
                {
                    encoding = Encoding::RLE_DICTIONARY;
                    let width = bit_width(count.saturating_sub(1).into());
                    body.put([width as u8], 1);
                    put_hybrid(numbers, width, &mut body);
                    bytes.truncate(LEVELS);
                } else if let Some(room) = LEVELS.checked_sub(body.len()) {
                    // The values stay where they are.
                    body.bytes().iter().enumerate().for_each(|(i, b)| bytes.put_at(room + i, [*b]));
                    std::mem::swap(bytes, &mut body);
                    (from, is_values) = (room, true);
                } else {
                    body.put_slice(plain);
                    bytes.truncate(LEVELS);
                }
            }
        }
        if !self.encodings.contains(&encoding) {
            self.encodings.push(encoding);
        }
        let compression = *self.compression.get_or_insert_with(|| match encoding {
            Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_BYTE_ARRAY => Compression::UNCOMPRESSED,
            Encoding::RLE_DICTIONARY => Compression::LZ4_RAW,
            _ if packs_well(&body.bytes()[from..]) => Compression::LZ4_RAW,
            _ => Compression::UNCOMPRESSED,
        });
        let (len, pages) = (body.len(), &mut self.pages);
        let size = len - from;
        let written;
        if compression == Compression::UNCOMPRESSED {
            let room;
            (room, written) = lend(body.into_room(), from..len, |body| put_page(body, size, rows, encoding, pages))?;
            body = room.into();
        } else {
            let packed = pack(&body.bytes()[from..], &mut scratch.packed);
            let buffer = std::mem::take(&mut scratch.packed);
            (scratch.packed, written) = lend(buffer, ..packed, |body| put_page(body, size, rows, encoding, pages))?;
            body.truncate(0);
        }
        self.size += written;
        // One very long value does not hold memory for all that come after it.
        body.shrink_to(2 * PAGE_BYTES);
        scratch.packed.truncate(2 * PAGE_BYTES);
        scratch.packed.shrink_to(2 * PAGE_BYTES);
        if let (Values::Bytes(bytes), true) = (&mut self.values, is_values) {
            std::mem::swap(bytes, &mut body);
            bytes.room(LEVELS);
            bytes.used(LEVELS);
            body.truncate(0);
        }
        scratch.body = body;
        self.rows += rows;
        self.nulls += nulls;
        Ok(())
    }

    /// The chunk, and starts the next one.
    pub(super) fn finish(&mut self, scratch: &mut Scratch) -> ParquetResult<Made> {
        self.end_page(scratch)?;
        let compression = self.compression.take().unwrap_or(Compression::UNCOMPRESSED);
        let (mut before, mut dictionary_at) = (Vec::new(), None);
        if let Some(dictionary) = self.dictionary.take().filter(|d| d.count > 0) {
            let plain = dictionary.plain.bytes();
            let body = match compression {
                Compression::LZ4_RAW => lz4_flex::block::compress(plain),
                _ => plain.to_vec(),
            };
            self.size += put_dictionary(body.into(), plain.len(), dictionary.count as usize, &mut before)?;
            dictionary_at = Some(0);
            if !self.encodings.contains(&Encoding::PLAIN) {
                self.encodings.push(Encoding::PLAIN);
            }
        }
        let pages = std::mem::replace(&mut self.pages, self.spare.take());
        let about = ColumnChunkMetaData::builder(self.descriptor.clone())
            .set_encodings([&[Encoding::RLE], self.encodings.as_slice()].concat())
            .set_compression(compression)
            .set_num_values(self.rows as i64)
            .set_dictionary_page_offset(dictionary_at)
            .set_data_page_offset(before.len() as i64)
            .set_total_compressed_size((before.len() + pages.len()) as i64)
            .set_total_uncompressed_size(self.size as i64)
            .set_statistics(self.statistics())
            .build()?;
        self.encodings.clear();
        (self.rows, self.nulls, self.size, self.range) = (0, 0, 0, None);
        Ok(Made { dictionary: before, pages, about })
    }

    /// How many nulls there are; of whole numbers with a sign the least and the greatest too, by which a reader passes over row groups.
    fn statistics(&self) -> Statistics {
        let nulls = Some(self.nulls as u64);
        let range = self.range.filter(|_| !matches!(self.kind, Kind::UInt32 | Kind::UInt64)).unzip();
        match self.descriptor.physical_type() {
            Type::INT32 => Statistics::int32(range.0.map(|n| n as i32), range.1.map(|n| n as i32), None, nulls, false),
            Type::INT64 => Statistics::int64(range.0, range.1, None, nulls, false),
            Type::BOOLEAN => Statistics::boolean(None, None, None, nulls, false),
            Type::FLOAT => Statistics::float(None, None, None, nulls, false),
            Type::DOUBLE => Statistics::double(None, None, None, nulls, false),
            Type::FIXED_LEN_BYTE_ARRAY => Statistics::fixed_len_byte_array(None, None, None, nulls, false),
            _ => Statistics::byte_array(None, None, None, nulls, false),
        }
    }
}

/// No values yet, behind room for the levels.
fn behind_levels() -> Buffer {
    let mut bytes = Buffer::default();
    bytes.room(LEVELS);
    bytes.used(LEVELS);
    bytes
}

/// Goes through a column. `keep` gets every value but nulls, and says None of one that does not fit.
#[inline]
fn fill(
    mut column: ColumnOf<'_, '_>,
    present: &mut Bits,
    unfit: &mut bool,
    mut keep: impl FnMut(Value<'_>) -> Option<()>,
) -> Result<()> {
    let (mut bits, mut count) = (0, 0);
    while let Some(value) = column.next() {
        let value = value?;
        let is_null = matches!(value, Value::Null);
        let is_there = !is_null && keep(value).is_some();
        *unfit |= !is_there && !is_null;
        bits |= u64::from(is_there) << count;
        count += 1;
        if count == 64 {
            present.push(bits, 64);
            (bits, count) = (0, 0);
        }
    }
    present.push(bits, count);
    Ok(())
}

fn fixed<const N: usize>(b: &[u8], out: &mut Buffer) -> Option<()> {
    out.put(typed::fixed::<N>(b)?, N);
    Some(())
}
