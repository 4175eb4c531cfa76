//! Columns of a Parquet file: which type one has there.
//!
//! | PostgreSQL | Parquet |
//! |---|---|
//! | bool | BOOLEAN |
//! | smallint, integer, bigint | INT 16, 32, 64 |
//! | oid, xid, cid, regclass and its like; xid8 | UINT 32; 64 |
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

use arrow_schema::extension::Uuid;
use arrow_schema::{DataType, Field, TimeUnit};

use crate::cell::Value;
use crate::relation::Column;
use crate::value::{is_reg, typed};

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
    /// Text that is stored as it is printed, when the database is in UTF-8.
    Plain,
    Text,
    /// Where the row is, as text.
    Tid,
}

impl Kind {
    pub(super) fn of_oid(oid: u32) -> Kind {
        match oid {
            16 => Kind::Bool,
            17 => Kind::Bytes,
            20 => Kind::Int64,
            21 => Kind::Int16,
            23 => Kind::Int32,
            25 | 114 | 194 | 1042 | 1043 | 1790 => Kind::Plain,
            26 | 28 | 29 => Kind::UInt32,
            oid if is_reg(oid) => Kind::UInt32,
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

    /// Of the columns beside those of the relation.
    pub(super) fn of_extra(oid: u32) -> Kind {
        match oid {
            27 => Kind::Tid,
            oid => Kind::of_oid(oid),
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
            Kind::Plain | Kind::Text | Kind::Tid => DataType::Utf8,
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
