//! What a page falls into: parts, their fields, and what is wrong with it. The same shape for every kind of page.

use std::fmt;

use crate::lsn::Lsn;

/// A named piece of a page: its header, one line pointer, one tuple.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// What it is, e.g. `tuple`.
    pub name: &'static str,
    /// Which of several; line pointers count from 1.
    pub number: Option<u32>,
    /// Where it begins: offset in the page.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Its fields in the order they are stored.
    pub fields: Vec<Field>,
}

impl Part {
    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }

    /// The number in the field of this name.
    pub fn number_of(&self, name: &str) -> Option<u64> {
        match self.field(name)?.value {
            Value::Number(n) => Some(n),
            _ => None,
        }
    }
}

/// One field, under its owner's name.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The name in the owner's headers.
    pub name: &'static str,
    /// Offset in the page.
    pub start: usize,
    /// Bytes it takes; 0 for what is not stored but follows from other fields (bits of a number, counts).
    pub len: usize,
    /// For colour and for grouping.
    pub kind: FieldKind,
    /// As stored.
    pub value: Value,
    /// Names of the bits that are set.
    pub flags: Vec<&'static str>,
    /// For people; empty when the value speaks for itself.
    pub words: String,
}

/// What sort of bytes a field is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FieldKind {
    Header,
    LinePointer,
    TupleHeader,
    Data,
    Meta,
    Special,
    /// Between fields, to begin the next one at a multiple of 2, 4 or 8.
    Padding,
    /// The room between line pointers and tuples.
    Free,
    /// Bytes that nothing refers to, such as what a removed tuple left.
    Unused,
}

impl FieldKind {
    /// Its name, for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            FieldKind::Header => "header",
            FieldKind::LinePointer => "line pointer",
            FieldKind::TupleHeader => "tuple header",
            FieldKind::Data => "data",
            FieldKind::Meta => "meta",
            FieldKind::Special => "special",
            FieldKind::Padding => "padding",
            FieldKind::Free => "free",
            FieldKind::Unused => "unused",
        }
    }
}

/// A value as stored.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum Value {
    Number(u64),
    Signed(i64),
    Real(f64),
    Truth(bool),
    Tid(Tid),
    Tids(Vec<Tid>),
    Numbers(Vec<u64>),
    /// A position in the log.
    Lsn(u64),
    Bytes(Vec<u8>),
    /// Bits in the order of their numbers.
    Bits(Vec<bool>),
}

/// Where a row is: block and line pointer, as PostgreSQL's `ItemPointerData`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Tid {
    /// `ip_blkid`, stored as two halves, the high one first.
    pub block: u32,
    /// `ip_posid`, from 1.
    pub posid: u16,
}

impl Tid {
    /// From its six bytes.
    #[inline]
    pub fn parse(b: [u8; 6]) -> Tid {
        Tid {
            block: u32::from(u16::from_le_bytes([b[0], b[1]])) << 16 | u32::from(u16::from_le_bytes([b[2], b[3]])),
            posid: u16::from_le_bytes([b[4], b[5]]),
        }
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({},{})", self.block, self.posid)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Number(n) => write!(f, "{n}"),
            Value::Signed(n) => write!(f, "{n}"),
            Value::Real(n) => write!(f, "{n}"),
            Value::Truth(b) => write!(f, "{b}"),
            Value::Tid(tid) => write!(f, "{tid}"),
            Value::Tids(tids) => {
                let all: Vec<String> = tids.iter().map(Tid::to_string).collect();
                f.write_str(&all.join(" "))
            }
            Value::Numbers(numbers) => {
                let all: Vec<String> = numbers.iter().map(u64::to_string).collect();
                f.write_str(&all.join(" "))
            }
            Value::Lsn(lsn) => Lsn(*lsn).fmt(f),
            Value::Bytes(bytes) => bytes.iter().try_for_each(|b| write!(f, "{b:02x}")),
            Value::Bits(bits) => bits.iter().try_for_each(|b| f.write_str(if *b { "1" } else { "0" })),
        }
    }
}

/// Something in a page that cannot be: what, where, what it should be and what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wrong {
    /// Its sort, for programs and for counting.
    pub class: &'static str,
    /// The field, as its owner names it.
    pub what: &'static str,
    /// The line pointer it belongs to, from 1.
    pub item: Option<u32>,
    /// Offset in the page.
    pub offset: usize,
    /// What would be right.
    pub wanted: String,
    /// What is there.
    pub found: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        if let Some(item) = self.item {
            write!(f, " of line pointer {item}")?;
        }
        write!(f, " at offset {}: expected {}, found {}", self.offset, self.wanted, self.found)
    }
}

impl std::error::Error for Wrong {}
