//! Columns of a Parquet file: which type one has there, and values put straight into Arrow arrays of it.
//!
//! | PostgreSQL | Parquet |
//! |---|---|
//! | bool | BOOLEAN |
//! | smallint, integer, bigint | INT 16, 32, 64 |
//! | oid, xid, cid; xid8 | UINT 32; 64 |
//! | real, double precision | FLOAT, DOUBLE |
//! | numeric(p,s), p up to 38 | DECIMAL(p,s) |
//! | date, time | DATE, TIME in microseconds |
//! | timestamp, timestamptz | TIMESTAMP in microseconds, without and with UTC |
//! | uuid | UUID |
//! | bytea | BYTE_ARRAY |
//! | everything else | STRING, as the server prints it |
//!
//! Parquet has no infinite date or timestamp, no time 24:00, no decimal that is not a number, no timestamp after the year 294246, and a
//! value that was lost has no bytes. A column with such a value is STRING from its first row to its last, as the server prints it.

use std::sync::Arc;

use arrow_array::builder::{BinaryBuilder, BooleanBuilder, FixedSizeBinaryBuilder, PrimitiveBuilder};
use arrow_array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimestampMicrosecondType, UInt32Type, UInt64Type,
};
use arrow_array::{ArrayRef, Decimal128Array, StringArray, TimestampMicrosecondArray};
use arrow_buffer::{NullBufferBuilder, OffsetBuffer, ScalarBuffer};
use arrow_schema::extension::Uuid;
use arrow_schema::{DataType, Field, TimeUnit};

use crate::decode::Value;
use crate::relation::Column;
use crate::value::{typed, Printer, Types};

/// What a column is in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Bool,
    Int16,
    Int32,
    Int64,
    UInt32,
    UInt64,
    Float32,
    Float64,
    Decimal(u8, u8),
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Uuid,
    Bytes,
    /// Text that is stored as it is printed.
    Plain,
    Text,
}

impl Kind {
    pub(super) fn of_oid(oid: u32) -> Kind {
        match oid {
            16 => Kind::Bool,
            17 => Kind::Bytes,
            20 => Kind::Int64,
            21 => Kind::Int16,
            23 => Kind::Int32,
            25 | 114 | 142 | 1042 | 1043 => Kind::Plain,
            26 | 28 | 29 => Kind::UInt32,
            5069 => Kind::UInt64,
            700 => Kind::Float32,
            701 => Kind::Float64,
            1082 => Kind::Date,
            1083 => Kind::Time,
            1114 => Kind::Timestamp,
            1184 => Kind::TimestampTz,
            2950 => Kind::Uuid,
            _ => Kind::Text,
        }
    }

    pub(super) fn of(column: &Column) -> Kind {
        match (column.base, typed::precision(column.atttypmod)) {
            (1700, Some((precision, scale))) => Kind::Decimal(precision, scale),
            (oid, _) => Kind::of_oid(oid),
        }
    }

    /// Whether every value of the type fits.
    pub(super) fn holds_all(self) -> bool {
        matches!(self, Kind::Plain | Kind::Text)
    }

    fn data_type(self) -> DataType {
        match self {
            Kind::Bool => DataType::Boolean,
            Kind::Int16 => DataType::Int16,
            Kind::Int32 => DataType::Int32,
            Kind::Int64 => DataType::Int64,
            Kind::UInt32 => DataType::UInt32,
            Kind::UInt64 => DataType::UInt64,
            Kind::Float32 => DataType::Float32,
            Kind::Float64 => DataType::Float64,
            Kind::Decimal(precision, scale) => DataType::Decimal128(precision, scale as i8),
            Kind::Date => DataType::Date32,
            Kind::Time => DataType::Time64(TimeUnit::Microsecond),
            Kind::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            Kind::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            Kind::Uuid => DataType::FixedSizeBinary(16),
            Kind::Bytes => DataType::Binary,
            Kind::Plain | Kind::Text => DataType::Utf8,
        }
    }

    pub(super) fn field(self, name: &str) -> Field {
        let field = Field::new(name, self.data_type(), true);
        match self {
            Kind::Uuid => field.with_extension_type(Uuid),
            _ => field,
        }
    }

    /// Whether a value can be kept in a column of this kind; the same functions that keep it say so.
    pub(super) fn fits(self, value: Value<'_>) -> bool {
        let b = match value {
            Value::Null => return true,
            Value::Lost(_) => return self.holds_all(),
            Value::Bytes(b) => b,
        };
        match self {
            Kind::Decimal(precision, scale) => typed::decimal(b, precision, scale).is_some(),
            Kind::Date => typed::date(b).is_some(),
            Kind::Time => typed::time(b).is_some(),
            Kind::Timestamp | Kind::TimestampTz => typed::timestamp(b).is_some(),
            // These have all values that their width has, and a row is cut up by widths.
            _ => true,
        }
    }
}

/// An array that is being filled.
pub(super) struct Builder {
    values: Values,
    /// A value came that does not fit. Null stands in its place, so the array must not be used.
    pub unfit: bool,
}

enum Values {
    Bool(BooleanBuilder),
    Int16(PrimitiveBuilder<Int16Type>),
    Int32(PrimitiveBuilder<Int32Type>),
    Int64(PrimitiveBuilder<Int64Type>),
    UInt32(PrimitiveBuilder<UInt32Type>),
    UInt64(PrimitiveBuilder<UInt64Type>),
    Float32(PrimitiveBuilder<Float32Type>),
    Float64(PrimitiveBuilder<Float64Type>),
    Decimal(PrimitiveBuilder<Decimal128Type>, u8, u8),
    Date(PrimitiveBuilder<Date32Type>),
    Time(PrimitiveBuilder<Time64MicrosecondType>),
    Timestamp(PrimitiveBuilder<TimestampMicrosecondType>, bool),
    Uuid(FixedSizeBinaryBuilder),
    Bytes(BinaryBuilder),
    Plain(Strings),
    Text(Strings, Option<Printer>),
}

/// Strings one behind the other: printed where they stay.
struct Strings {
    text: String,
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Strings {
    fn new() -> Strings {
        Strings { text: String::new(), ends: vec![0], nulls: NullBufferBuilder::new(0) }
    }

    /// What was added to the text is a value, or there is none.
    #[inline]
    fn end(&mut self, there: bool) {
        // A batch is ended long before, at some megabytes; of a value longer than 2 GB there is none.
        self.ends.push(i32::try_from(self.text.len()).unwrap_or(i32::MAX));
        self.nulls.append(there);
    }

    fn finish(&mut self) -> ArrayRef {
        // The next batch will be about as large.
        let (bytes, count) = (self.text.len(), self.ends.len());
        let text = std::mem::replace(&mut self.text, String::with_capacity(bytes));
        let ends = std::mem::replace(&mut self.ends, Vec::with_capacity(count));
        self.ends.push(0);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(ends));
        Arc::new(StringArray::new(offsets, text.into_bytes().into(), self.nulls.finish()))
    }
}

fn put<T: ArrowPrimitiveType>(builder: &mut PrimitiveBuilder<T>, value: Option<T::Native>) -> bool {
    builder.append_option(value);
    value.is_some()
}

impl Builder {
    /// `printer`: how a value is printed that is kept as text.
    pub(super) fn new(kind: Kind, printer: Option<Printer>) -> Builder {
        let values = match kind {
            Kind::Bool => Values::Bool(BooleanBuilder::new()),
            Kind::Int16 => Values::Int16(PrimitiveBuilder::new()),
            Kind::Int32 => Values::Int32(PrimitiveBuilder::new()),
            Kind::Int64 => Values::Int64(PrimitiveBuilder::new()),
            Kind::UInt32 => Values::UInt32(PrimitiveBuilder::new()),
            Kind::UInt64 => Values::UInt64(PrimitiveBuilder::new()),
            Kind::Float32 => Values::Float32(PrimitiveBuilder::new()),
            Kind::Float64 => Values::Float64(PrimitiveBuilder::new()),
            Kind::Decimal(precision, scale) => Values::Decimal(PrimitiveBuilder::new(), precision, scale),
            Kind::Date => Values::Date(PrimitiveBuilder::new()),
            Kind::Time => Values::Time(PrimitiveBuilder::new()),
            Kind::Timestamp => Values::Timestamp(PrimitiveBuilder::new(), false),
            Kind::TimestampTz => Values::Timestamp(PrimitiveBuilder::new(), true),
            Kind::Uuid => Values::Uuid(FixedSizeBinaryBuilder::new(16)),
            Kind::Bytes => Values::Bytes(BinaryBuilder::new()),
            Kind::Plain => Values::Plain(Strings::new()),
            Kind::Text => Values::Text(Strings::new(), printer),
        };
        Builder { values, unfit: false }
    }

    pub(super) fn text(&mut self, print: impl FnOnce(&mut String)) {
        if let Values::Plain(strings) | Values::Text(strings, _) = &mut self.values {
            print(&mut strings.text);
            strings.end(true);
        }
    }

    pub(super) fn uint32(&mut self, value: u32) {
        if let Values::UInt32(builder) = &mut self.values {
            builder.append_value(value);
        }
    }

    pub(super) fn int32(&mut self, value: i32) {
        if let Values::Int32(builder) = &mut self.values {
            builder.append_value(value);
        }
    }

    /// About how many bytes it took.
    #[inline]
    pub(super) fn value(&mut self, types: &Types, value: Value<'_>) -> usize {
        let b = match value {
            Value::Bytes(b) => b,
            Value::Null => {
                self.null();
                return 1;
            }
            Value::Lost(text) => {
                self.lost(text);
                return text.len();
            }
        };
        let fits = match &mut self.values {
            Values::Bool(builder) => {
                let value = typed::bool(b);
                builder.append_option(value);
                value.is_some()
            }
            Values::Int16(builder) => put(builder, typed::fixed(b).map(i16::from_le_bytes)),
            Values::Int32(builder) => put(builder, typed::fixed(b).map(i32::from_le_bytes)),
            Values::Int64(builder) => put(builder, typed::fixed(b).map(i64::from_le_bytes)),
            Values::UInt32(builder) => put(builder, typed::u32(b)),
            Values::UInt64(builder) => put(builder, typed::fixed(b).map(u64::from_le_bytes)),
            Values::Float32(builder) => put(builder, typed::fixed(b).map(f32::from_le_bytes)),
            Values::Float64(builder) => put(builder, typed::fixed(b).map(f64::from_le_bytes)),
            Values::Decimal(builder, precision, scale) => put(builder, typed::decimal(b, *precision, *scale)),
            Values::Date(builder) => put(builder, typed::date(b)),
            Values::Time(builder) => put(builder, typed::time(b)),
            Values::Timestamp(builder, _) => put(builder, typed::timestamp(b)),
            Values::Uuid(builder) => builder.append_value(b).is_ok(),
            Values::Bytes(builder) => {
                builder.append_value(b);
                true
            }
            Values::Plain(strings) => {
                match std::str::from_utf8(b) {
                    Ok(text) => strings.text.push_str(text),
                    Err(_) => strings.text.push_str(&String::from_utf8_lossy(b)),
                }
                strings.end(true);
                true
            }
            Values::Text(strings, printer) => {
                let before = strings.text.len();
                if let Some(printer) = printer {
                    types.print(*printer, b, &mut strings.text);
                }
                strings.end(true);
                return strings.text.len() - before;
            }
        };
        self.unfit |= !fits;
        b.len()
    }

    fn lost(&mut self, text: &str) {
        match &mut self.values {
            Values::Plain(strings) | Values::Text(strings, _) => {
                strings.text.push_str(text);
                strings.end(true);
            }
            _ => {
                self.null();
                self.unfit = true;
            }
        }
    }

    fn null(&mut self) {
        match &mut self.values {
            Values::Bool(builder) => builder.append_null(),
            Values::Int16(builder) => builder.append_null(),
            Values::Int32(builder) => builder.append_null(),
            Values::Int64(builder) => builder.append_null(),
            Values::UInt32(builder) => builder.append_null(),
            Values::UInt64(builder) => builder.append_null(),
            Values::Float32(builder) => builder.append_null(),
            Values::Float64(builder) => builder.append_null(),
            Values::Decimal(builder, ..) => builder.append_null(),
            Values::Date(builder) => builder.append_null(),
            Values::Time(builder) => builder.append_null(),
            Values::Timestamp(builder, _) => builder.append_null(),
            Values::Uuid(builder) => builder.append_null(),
            Values::Bytes(builder) => builder.append_null(),
            Values::Plain(strings) | Values::Text(strings, _) => strings.end(false),
        }
    }

    /// The values since the last call.
    pub(super) fn finish(&mut self) -> ArrayRef {
        match &mut self.values {
            Values::Bool(builder) => Arc::new(builder.finish()),
            Values::Int16(builder) => Arc::new(builder.finish()),
            Values::Int32(builder) => Arc::new(builder.finish()),
            Values::Int64(builder) => Arc::new(builder.finish()),
            Values::UInt32(builder) => Arc::new(builder.finish()),
            Values::UInt64(builder) => Arc::new(builder.finish()),
            Values::Float32(builder) => Arc::new(builder.finish()),
            Values::Float64(builder) => Arc::new(builder.finish()),
            Values::Decimal(builder, precision, scale) => {
                let array: Decimal128Array = builder.finish();
                Arc::new(array.with_data_type(DataType::Decimal128(*precision, *scale as i8)))
            }
            Values::Date(builder) => Arc::new(builder.finish()),
            Values::Time(builder) => Arc::new(builder.finish()),
            Values::Timestamp(builder, zone) => {
                let array: TimestampMicrosecondArray = builder.finish();
                Arc::new(if *zone { array.with_timezone("UTC") } else { array })
            }
            Values::Uuid(builder) => Arc::new(builder.finish()),
            Values::Bytes(builder) => Arc::new(builder.finish()),
            Values::Plain(strings) | Values::Text(strings, _) => strings.finish(),
        }
    }
}
