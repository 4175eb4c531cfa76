//! One column of a row group: values from the rows' own bytes to the pages of a Parquet column chunk.
//!
//! | values | encoding |
//! |---|---|
//! | whole numbers, days, times, decimals of up to 18 digits | DELTA_BINARY_PACKED |
//! | ctid | DELTA_BYTE_ARRAY |
//! | strings | DELTA_LENGTH_BYTE_ARRAY: their lengths, then all of them without a gap, which packs better than with lengths in between |
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
use super::dictionary::Dictionary;
use super::packed::{lend, pack, packs_well, Spare};
use super::strings::{Strings, LOOKED_AT};
use super::tids::Tids;
use crate::cell::{Place, Value};
use crate::cells::ColumnOf;
use crate::value::{typed, Printer, Text, Types};
use leadline_errors::Result;

/// Most values of a page.
const PAGE_ROWS: usize = 16_384;
/// Bytes from which on a page is ended: it stays in the processor's cache until it is packed, which is quicker below 64 KiB.
const PAGE_BYTES: usize = 48 << 10;
/// Bytes that a buffer keeps for the next page, so that one very long value does not hold memory for all that come after it.
const KEPT: usize = 1 << 20;

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
    /// Of fixed width, as PLAIN has them.
    Bytes(Buffer),
    Strings(Strings),
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
            (_, Type::BYTE_ARRAY) => Values::Strings(Strings::default()),
            _ => Values::Bytes(Buffer::default()),
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
            Values::Bytes(bytes) => bytes.len(),
            Values::Strings(strings) => strings.len() + 4 * strings.count(),
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
            Kind::Bytes => self.strings(column, |value, out| value.bytes().map(|b| out.push_part(b)))?,
            // Only the places of rows are of this kind, and they are no values of them.
            Kind::Tid => {}
            Kind::Plain if types.encoding.is_none() => self.texts(column, |b, out| out.push_bytes(b))?,
            Kind::Plain | Kind::Text => {
                let Some(printer) = self.printer else { return Ok(()) };
                self.texts(column, |b, out| types.print(printer, b, out))?;
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
            read(value.bytes()?).and_then(|number| room.next().map(|place| *place = number))
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

    /// `put` appends a value.
    #[inline]
    fn strings(
        &mut self,
        column: ColumnOf<'_, '_>,
        mut put: impl FnMut(Value<'_>, &mut Text) -> Option<()>,
    ) -> Result<()> {
        let Values::Strings(strings) = &mut self.values else { return Ok(()) };
        fill(column, &mut self.present, &mut self.unfit, |value| strings.push(|out| put(value, out)))
    }

    /// `print` appends a value as text. What is said of a lost one is text too.
    #[inline]
    fn texts(&mut self, column: ColumnOf<'_, '_>, mut print: impl FnMut(&[u8], &mut Text)) -> Result<()> {
        self.strings(column, |value, out| {
            match value {
                Value::Bytes(b) => print(b, out),
                Value::Lost(said) => out.push_str(said),
                Value::Null => {}
            }
            Some(())
        })
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
        if let Values::Strings(strings) = &mut self.values {
            strings.push(|out| {
                out.push_bytes(text);
                Some(())
            });
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
        let bytes = match &self.values {
            // Enough for the first page to tell whether they occur again.
            Values::Strings(strings) if self.repeats.is_none() && strings.count() < LOOKED_AT => {
                strings.len() * PAGE_BYTES / KEPT
            }
            Values::Strings(strings) => strings.len(),
            Values::Bytes(bytes) => bytes.len(),
            _ => 0,
        };
        let is_full = self.present.count >= PAGE_ROWS || bytes >= PAGE_BYTES;
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
                body.put_slice(bytes.bytes());
                bytes.truncate(0);
            }
            Values::Strings(strings) => {
                if self.compression.is_none() && *self.repeats.get_or_insert_with(|| strings.repeat()) {
                    self.dictionary = Some(Dictionary::default());
                }
                let numbers = &mut scratch.numbers;
                let count = self.dictionary.as_mut().and_then(|d| d.number(strings, numbers).then_some(d.count));
                if let Some(count) = count {
                    let width = bit_width(count.saturating_sub(1).into());
                    encoding = Encoding::RLE_DICTIONARY;
                    body.put([width as u8], 1);
                    put_hybrid(numbers, width, &mut body);
                } else {
                    encoding = Encoding::DELTA_LENGTH_BYTE_ARRAY;
                    strings.put(&mut body);
                }
                strings.clear(KEPT);
            }
        }
        if !self.encodings.contains(&encoding) {
            self.encodings.push(encoding);
        }
        let compression = *self.compression.get_or_insert_with(|| match encoding {
            Encoding::DELTA_BINARY_PACKED | Encoding::DELTA_BYTE_ARRAY => Compression::UNCOMPRESSED,
            Encoding::RLE_DICTIONARY => Compression::LZ4_RAW,
            _ if packs_well(body.bytes()) => Compression::LZ4_RAW,
            _ => Compression::UNCOMPRESSED,
        });
        let (size, pages) = (body.len(), &mut self.pages);
        let written;
        if compression == Compression::UNCOMPRESSED {
            let room;
            (room, written) = lend(body.into_room(), size, |body| put_page(body, size, rows, encoding, pages))?;
            body = room.into();
        } else {
            let packed = pack(body.bytes(), &mut scratch.packed);
            let buffer = std::mem::take(&mut scratch.packed);
            (scratch.packed, written) = lend(buffer, packed, |body| put_page(body, size, rows, encoding, pages))?;
        }
        self.size += written;
        body.truncate(0);
        body.shrink_to(KEPT);
        scratch.body = body;
        scratch.packed.truncate(KEPT);
        scratch.packed.shrink_to(KEPT);
        self.rows += rows;
        self.nulls += nulls;
        Ok(())
    }

    /// The chunk, and starts the next one.
    pub(super) fn finish(&mut self, scratch: &mut Scratch) -> ParquetResult<Made> {
        self.end_page(scratch)?;
        let compression = self.compression.take().unwrap_or(Compression::UNCOMPRESSED);
        let (mut before, mut dictionary_at) = (Vec::new(), None);
        // Pages of nulls alone refer to it too, and there are readers that look for it then.
        if let Some(dictionary) = self.dictionary.take() {
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

/// Goes through a column. `keep` gets every value but nulls, and says None of one that does not fit.
#[inline]
fn fill(
    mut column: ColumnOf<'_, '_>,
    present: &mut Bits,
    unfit: &mut bool,
    mut keep: impl FnMut(Value<'_>) -> Option<()>,
) -> Result<()> {
    // The last bit is the highest, and all move down by one for the next.
    let (mut bits, mut count, mut fits) = (0, 0, true);
    while let Some(value) = column.next() {
        let value = value?;
        let is_null = matches!(value, Value::Null);
        let is_there = !is_null && keep(value).is_some();
        fits &= is_there || is_null;
        bits = bits >> 1 | u64::from(is_there) << 63;
        count += 1;
        if count == 64 {
            present.push(bits, 64);
            count = 0;
        }
    }
    if count > 0 {
        present.push(bits >> (64 - count), count);
    }
    *unfit |= !fits;
    Ok(())
}

fn fixed<const N: usize>(b: &[u8], out: &mut Buffer) -> Option<()> {
    out.put(typed::fixed::<N>(b)?, N);
    Some(())
}
