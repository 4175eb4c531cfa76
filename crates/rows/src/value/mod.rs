//! Values as text: what the server's output functions print with datestyle ISO, intervalstyle postgres, bytea_output hex,
//! extra_float_digits 1 and timezone UTC.
//!
//! A value is given without its varlena header, unpacked. Nothing but None comes of bytes that are no value of the type.
//! Source: the output function of each type in src/backend/utils/adt.

mod geometry;
mod json;
mod nested;
mod net;
pub(crate) mod number;
mod text_search;
mod time;
pub(crate) mod typed;

use std::collections::HashMap;
use std::fmt::Write;

use crate::tuple::Storage;

pub(crate) use nested::first_element;

/// Composites in arrays in ranges: no deeper than this.
const DEEPEST: u32 = 64;
/// A value whose text is longer is none: the server could not print it either.
const LONGEST: usize = 1 << 28;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Types by oid.
#[derive(Debug, Default)]
pub struct Types(pub HashMap<u32, Type>);

/// What has to be known of a type to read its values.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Type {
    pub name: String,
    pub storage: Storage,
    pub kind: Kind,
}

/// What a value of a type is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// One of the built-in types, or one that is not known.
    Scalar,
    /// Of elements of this type.
    Array(u32),
    /// Labels by oid.
    Enum(HashMap<u32, String>),
    /// A type with rules.
    Domain(u32),
    /// Type of each field; dropped ones, of type 0, lie in the row still.
    Composite(Vec<(u32, Storage)>),
    /// From one value of this type to another.
    Range(u32),
    /// Several ranges of this type.
    Multirange(u32),
}

impl Types {
    /// Whether values of the type are printed otherwise than as hex.
    pub fn is_known(&self, oid: u32) -> bool {
        match self.0.get(&oid).map(|t| &t.kind) {
            Some(Kind::Scalar) => scalar(oid).is_some(),
            Some(Kind::Array(of) | Kind::Domain(of) | Kind::Range(of) | Kind::Multirange(of)) => {
                *of != oid && self.is_known_below(*of, 0)
            }
            Some(Kind::Composite(fields)) => fields.iter().all(|f| f.0 == 0 || self.is_known_below(f.0, 0)),
            Some(Kind::Enum(_)) => true,
            None => false,
        }
    }

    fn is_known_below(&self, oid: u32, depth: u32) -> bool {
        let below = |of: &u32| depth < DEEPEST && self.is_known_below(*of, depth + 1);
        match self.0.get(&oid).map(|t| &t.kind) {
            Some(Kind::Scalar) => scalar(oid).is_some(),
            Some(Kind::Array(of) | Kind::Domain(of) | Kind::Range(of) | Kind::Multirange(of)) => below(of),
            Some(Kind::Composite(fields)) => fields.iter().all(|f| f.0 == 0 || below(&f.0)),
            Some(Kind::Enum(_)) => true,
            None => false,
        }
    }

    /// The type that a domain is made of, in the end.
    pub fn base(&self, mut oid: u32) -> u32 {
        for _ in 0..DEEPEST {
            match self.0.get(&oid).map(|t| &t.kind) {
                Some(Kind::Domain(of)) => oid = *of,
                _ => break,
            }
        }
        oid
    }

    /// How values of a type are printed, looked up once for many of them.
    pub fn printer(&self, oid: u32) -> Printer {
        let base = self.base(oid);
        let is_scalar = self.0.get(&base).is_some_and(|t| t.kind == Kind::Scalar);
        Printer { oid, scalar: scalar(base).filter(|_| is_scalar) }
    }

    /// Adds a value's text to `out`; what is no value of its type, and what is of a type not known, as hex.
    #[inline]
    pub fn print(&self, printer: Printer, bytes: &[u8], out: &mut String) {
        let before = out.len();
        let printed = match printer.scalar {
            Some(print) => print(bytes, out),
            None => self.write(printer.oid, bytes, out, 0),
        };
        if printed.is_none() {
            out.truncate(before);
            hex(bytes, out);
        }
    }

    fn write(&self, oid: u32, bytes: &[u8], out: &mut String, depth: u32) -> Option<()> {
        if depth > DEEPEST || out.len() > LONGEST {
            return None;
        }
        match &self.0.get(&oid)?.kind {
            Kind::Scalar => scalar(oid)?(bytes, out),
            Kind::Domain(of) => self.write(*of, bytes, out, depth + 1),
            Kind::Enum(labels) => {
                out.push_str(labels.get(&number::u32(bytes)?)?);
                Some(())
            }
            Kind::Array(_) => nested::array(self, bytes, out, depth + 1),
            Kind::Composite(fields) => nested::composite(self, fields, bytes, out, depth + 1),
            Kind::Range(of) => nested::range(self, *of, bytes, out, depth + 1),
            Kind::Multirange(of) => nested::multirange(self, *of, bytes, out, depth + 1),
        }
    }
}

type Print = fn(&[u8], &mut String) -> Option<()>;

/// How values of one type are printed: [`Types::printer`].
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    oid: u32,
    scalar: Option<Print>,
}

/// How a built-in type is printed, by its oid (src/include/catalog/pg_type.dat); None when it is not known here.
fn scalar(oid: u32) -> Option<Print> {
    Some(match oid {
        16 => |b, out| {
            out.push(if *b.first()? == 0 { 'f' } else { 't' });
            Some(())
        },
        17 => |b, out| {
            hex(b, out);
            Some(())
        },
        18 => char_,
        19 => |b, out| text(b.split(|c| *c == 0).next()?, out),
        20 => |b, out| number::signed(i64::from_le_bytes(*b.first_chunk()?), out),
        21 => |b, out| number::signed(i16::from_le_bytes(*b.first_chunk()?).into(), out),
        23 => |b, out| number::signed(i32::from_le_bytes(*b.first_chunk()?).into(), out),
        26 | 28 | 29 => |b, out| number::unsigned(number::u32(b)?.into(), 1, out),
        5069 => |b, out| number::unsigned(u64::from_le_bytes(*b.first_chunk()?), 1, out),
        // text, json, xml, bpchar, varchar
        25 | 114 | 142 | 1042 | 1043 => text,
        22 => |b, out| nested::vector(b, 2, out),
        30 => |b, out| nested::vector(b, 4, out),
        27 => |b, out| {
            let tid = leadline_page::Tid::parse(*b.first_chunk()?);
            show(tid, out)
        },
        700 => |b, out| number::float(f32::from_le_bytes(*b.first_chunk()?), 6, out),
        701 => |b, out| number::float(number::f64(b)?, 15, out),
        790 => number::money,
        1700 => number::numeric,
        600 => geometry::point,
        601 => geometry::lseg,
        602 => geometry::path,
        603 => geometry::box_,
        604 => geometry::polygon,
        628 => geometry::line,
        718 => geometry::circle,
        650 => |b, out| net::inet(b, true, out),
        869 => |b, out| net::inet(b, false, out),
        829 => |b, out| net::mac::<6>(b, out),
        774 => |b, out| net::mac::<8>(b, out),
        1082 => time::date,
        1083 => time::time,
        1114 => |b, out| time::timestamp(b, "", out),
        1184 => |b, out| time::timestamp(b, "+00", out),
        1186 => time::interval,
        1266 => time::timetz,
        1560 | 1562 => bits,
        2950 => uuid,
        3220 => |b, out| {
            let lsn = u64::from_le_bytes(*b.first_chunk()?);
            show(format_args!("{:X}/{:X}", lsn >> 32, lsn & 0xffff_ffff), out)
        },
        3614 => text_search::tsvector,
        3802 => json::jsonb,
        _ => return None,
    })
}

fn show(value: impl std::fmt::Display, out: &mut String) -> Option<()> {
    write!(out, "{value}").ok()
}

/// What is not UTF-8 (the database may have another encoding) is replaced.
fn text(bytes: &[u8], out: &mut String) -> Option<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) => out.push_str(text),
        Err(_) => out.push_str(&String::from_utf8_lossy(bytes)),
    }
    Some(())
}

/// As bytea: `\x` and two digits for each byte.
pub fn hex(bytes: &[u8], out: &mut String) {
    out.push_str("\\x");
    out.reserve(2 * bytes.len());
    for b in bytes {
        out.push(char::from(DIGITS[usize::from(b >> 4)]));
        out.push(char::from(DIGITS[usize::from(b & 15)]));
    }
}

/// One byte; nothing when it is 0, octal from 128 on (since 16; before, the byte itself, which is no text in UTF-8).
fn char_(b: &[u8], out: &mut String) -> Option<()> {
    match *b.first()? {
        0 => Some(()),
        c @ 1..=127 => show(char::from(c), out),
        c => show(format_args!("\\{c:03o}"), out),
    }
}

fn bits(b: &[u8], out: &mut String) -> Option<()> {
    let (count, bits) = b.split_first_chunk()?;
    let count = usize::try_from(i32::from_le_bytes(*count)).ok()?;
    if bits.len() < count.div_ceil(8) {
        return None;
    }
    out.extend((0..count).map(|i| if bits[i / 8] << (i % 8) & 0x80 != 0 { '1' } else { '0' }));
    Some(())
}

fn uuid(b: &[u8], out: &mut String) -> Option<()> {
    let b: &[u8; 16] = b.first_chunk()?;
    for (i, byte) in b.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        out.push(char::from(DIGITS[usize::from(byte >> 4)]));
        out.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    Some(())
}
