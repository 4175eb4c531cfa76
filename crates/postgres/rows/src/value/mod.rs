//! Values as text: what the server's output functions print with datestyle ISO, intervalstyle postgres, bytea_output hex,
//! extra_float_digits 1 and timezone UTC.
//!
//! A value is given without its varlena header, unpacked. Nothing but None comes of bytes that are no value of the type.
//! Source: the output function of each type in src/backend/utils/adt.

mod acl;
mod geometry;
mod json;
mod jsonpath;
mod nested;
mod net;
pub(crate) mod number;
mod text;
mod text_search;
pub(crate) mod time;
pub(crate) mod typed;
mod xml;

use std::collections::{HashMap, HashSet};
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Arc;

use crate::encoding::Encoding;
use crate::tuple::Storage;

pub(crate) use nested::first_element;
pub use number::Numeric;
pub use text::Text;

/// Composites in arrays in ranges: no deeper than this.
const DEEPEST: u32 = 64;
/// A value whose text is longer is none: the server could not print it either.
pub const LONGEST: usize = 1 << 28;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The types of a database.
#[derive(Debug, Default)]
pub struct Types {
    /// By oid; the tables of a database share them.
    pub by_oid: Arc<HashMap<u32, Type>>,
    /// Those that are printed as the type that they stand for, and are not compared as it is.
    pub alike: Arc<HashSet<u32>>,
    /// That of its texts, where it is not UTF-8.
    pub encoding: Option<Arc<Encoding>>,
    /// Values printed that are none of their type, and labels of enums that the catalog has not.
    pub invalid: AtomicU64,
}

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
    /// Of elements of a type that each value names; columns of catalogs alone are so.
    AnyArray,
    /// Labels by oid.
    Enum(HashMap<u32, String>),
    /// aclitem, with the names of roles by oid.
    Acl(HashMap<u32, String>),
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
    /// The same types, with nothing counted yet.
    pub(crate) fn again(&self, encoding: Option<Arc<Encoding>>) -> Types {
        let (by_oid, alike) = (Arc::clone(&self.by_oid), Arc::clone(&self.alike));
        Types { by_oid, alike, encoding, invalid: AtomicU64::default() }
    }

    /// One of them, to be changed.
    pub(crate) fn get_mut(&mut self, oid: u32) -> Option<&mut Type> {
        Arc::make_mut(&mut self.by_oid).get_mut(&oid)
    }

    pub(crate) fn insert(&mut self, oid: u32, new: Type) {
        Arc::make_mut(&mut self.by_oid).insert(oid, new);
    }

    /// The types that can be met in values of these, as far as they are known.
    pub(crate) fn reached(&self, from: &[u32]) -> HashSet<u32> {
        let (mut seen, mut next) = (HashSet::new(), from.to_vec());
        while let Some(oid) = next.pop() {
            if !seen.insert(oid) {
                continue;
            }
            match self.by_oid.get(&oid).map(|t| &t.kind) {
                Some(Kind::Array(of) | Kind::Domain(of) | Kind::Range(of) | Kind::Multirange(of)) => next.push(*of),
                Some(Kind::Composite(fields)) => next.extend(fields.iter().map(|f| f.0).filter(|oid| *oid != 0)),
                Some(Kind::AnyArray) => next.extend(self.by_oid.keys().copied()),
                _ => {}
            }
        }
        seen
    }

    /// Whether values of the type are printed otherwise than as hex.
    pub fn is_known(&self, oid: u32) -> bool {
        self.is_known_below(oid, 0, &mut HashMap::new())
    }

    /// `seen`: types asked for already, those not answered yet with no: what is made of itself is never known, and a type that
    /// many others share is looked at once.
    fn is_known_below(&self, oid: u32, depth: u32, seen: &mut HashMap<u32, bool>) -> bool {
        if let Some(known) = seen.get(&oid) {
            return *known;
        }
        seen.insert(oid, false);
        let mut below = |of: u32| depth < DEEPEST && self.is_known_below(of, depth + 1, seen);
        let known = match self.by_oid.get(&oid).map(|t| &t.kind) {
            Some(Kind::Scalar) => scalar(oid).is_some(),
            Some(Kind::Array(of) | Kind::Domain(of) | Kind::Range(of) | Kind::Multirange(of)) => below(*of),
            Some(Kind::Composite(fields)) => fields.iter().all(|f| f.0 == 0 || below(f.0)),
            Some(Kind::Enum(_) | Kind::Acl(_) | Kind::AnyArray) => true,
            None => false,
        };
        seen.insert(oid, known);
        known
    }

    /// Counts what could not be printed from zero again.
    pub(crate) fn forget_faults(&self) {
        self.invalid.store(0, Relaxed);
        self.encoding.iter().for_each(|encoding| encoding.forget_unconverted());
    }

    /// The type that a domain is made of, in the end.
    pub fn base(&self, mut oid: u32) -> u32 {
        for _ in 0..DEEPEST {
            match self.by_oid.get(&oid).map(|t| &t.kind) {
                Some(Kind::Domain(of)) => oid = *of,
                _ => break,
            }
        }
        oid
    }

    /// The same, of a type whose values compare as those of that type.
    pub(crate) fn compared(&self, oid: u32) -> Option<u32> {
        let domains = std::iter::successors(Some(oid), |oid| match self.by_oid.get(oid).map(|t| &t.kind) {
            Some(Kind::Domain(of)) => Some(*of),
            _ => None,
        });
        let is_alike = domains.take(DEEPEST as usize).any(|oid| self.alike.contains(&oid));
        (!is_alike).then(|| self.base(oid))
    }

    /// How values of a type are printed, looked up once for many of them.
    pub fn printer(&self, oid: u32) -> Printer {
        let base = self.base(oid);
        let is_scalar = self.by_oid.get(&base).is_some_and(|t| t.kind == Kind::Scalar);
        let scalar = scalar(base).filter(|_| is_scalar);
        let is_known = self.is_known(oid);
        match self.encoding {
            None => Printer { oid, is_known, scalar, converted: None },
            Some(_) => Printer { oid, is_known, scalar: None, converted: scalar },
        }
    }

    /// Adds a value's text to `out`; what is no value of its type, and what is of a type not known, as hex.
    #[inline]
    pub fn print(&self, printer: Printer, bytes: &[u8], out: &mut Text) {
        let before = out.len();
        let printed = match printer.scalar {
            Some(print) => print(bytes, out),
            None => self.print_other(printer, bytes, out),
        };
        if printed.is_none() {
            out.truncate(before);
            hex(bytes, out);
            self.invalid.fetch_add(printer.is_known.into(), Relaxed);
        }
    }

    /// A value that is made of others; in a database of another encoding than UTF-8 every value.
    fn print_other(&self, printer: Printer, bytes: &[u8], out: &mut Text) -> Option<()> {
        if let Some(encoding) = &self.encoding {
            out.set_encoding(encoding);
        }
        match printer.converted {
            Some(print) => print(bytes, out),
            None => self.write(printer.oid, bytes, out, 0),
        }
    }

    /// Whether these bytes are a value of the type; None when that is not known: of a type that is not, or of much text.
    pub fn is_value(&self, printer: Printer, bytes: &[u8], out: &mut Text) -> Option<bool> {
        if !printer.is_known {
            return None;
        }
        out.clear();
        let missing = self.invalid.load(Relaxed);
        let printed = match printer.scalar {
            Some(print) => print(bytes, out),
            None => self.print_other(printer, bytes, out),
        };
        let is_long = out.len() > LONGEST / 4;
        out.clear();
        out.shrink_to(1 << 20);
        match printed {
            _ if is_long => None,
            printed => Some(printed.is_some() && self.invalid.load(Relaxed) == missing),
        }
    }

    /// A value's text alone.
    pub fn text(&self, printer: Printer, bytes: &[u8]) -> String {
        let mut out = Text::new();
        self.print(printer, bytes, &mut out);
        out.into_string()
    }

    fn write(&self, oid: u32, bytes: &[u8], out: &mut Text, depth: u32) -> Option<()> {
        if depth > DEEPEST || out.len() > LONGEST {
            return None;
        }
        match &self.by_oid.get(&oid)?.kind {
            Kind::Scalar => scalar(oid)?(bytes, out)?,
            Kind::Domain(of) => self.write(*of, bytes, out, depth + 1)?,
            Kind::Enum(labels) => match (labels.get(&number::u32(bytes)?), number::u32(bytes)?) {
                (Some(label), _) => out.push_name(label),
                (None, label) => {
                    self.invalid.fetch_add(1, Relaxed);
                    write!(out, "<enum label {label} is missing>").ok()?;
                }
            },
            Kind::Acl(roles) => acl::aclitem(bytes, roles, out)?,
            Kind::Array(_) | Kind::AnyArray => nested::array(self, bytes, out, depth + 1)?,
            Kind::Composite(fields) => nested::composite(self, fields, bytes, out, depth + 1)?,
            Kind::Range(of) => nested::range(self, *of, bytes, out, depth + 1)?,
            Kind::Multirange(of) => nested::multirange(self, *of, bytes, out, depth + 1)?,
        }
        fits(out)
    }
}

/// None when there is more text than a value has. Asked after each piece: a few bytes can be much text, such as 1e131071, and
/// damaged ones can name the same text again and again.
fn fits(out: &Text) -> Option<()> {
    (out.len() <= LONGEST).then_some(())
}

type Print = fn(&[u8], &mut Text) -> Option<()>;

/// How values of one type are printed: [`Types::printer`].
#[derive(Debug, Clone, Copy)]
pub struct Printer {
    oid: u32,
    /// Whether what is no value of the type is told from what is of a type not known.
    is_known: bool,
    scalar: Option<Print>,
    /// The same in a database of another encoding than UTF-8, which then has no `scalar`.
    converted: Option<Print>,
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
        // The server prints a name, and this number only when there is none: names depend on the search_path of who asks.
        oid if is_reg(oid) => |b, out| number::unsigned(number::u32(b)?.into(), 1, out),
        2970 | 5038 => snapshot,
        5069 => |b, out| number::unsigned(u64::from_le_bytes(*b.first_chunk()?), 1, out),
        // text, json, pg_node_tree, bpchar, varchar, refcursor
        25 | 114 | 194 | 1042 | 1043 | 1790 => text,
        142 => xml::xml,
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
        3615 => text_search::tsquery,
        3802 => json::jsonb,
        4072 => jsonpath::jsonpath,
        _ => return None,
    })
}

/// Whether values are oids of things in a catalog: regproc, regprocedure, regoper, regoperator, regclass, regtype, regconfig,
/// regdictionary, regnamespace, regrole, regcollation, regdatabase.
pub(crate) fn is_reg(oid: u32) -> bool {
    matches!(oid, 24 | 2202..=2206 | 3734 | 3769 | 4089 | 4096 | 4191 | 8326)
}

fn show(value: impl std::fmt::Display, out: &mut Text) -> Option<()> {
    write!(out, "{value}").ok()
}

fn text(bytes: &[u8], out: &mut Text) -> Option<()> {
    out.push_bytes(bytes);
    Some(())
}

/// As bytea: `\x` and two digits for each byte.
pub fn hex(bytes: &[u8], out: &mut Text) {
    out.push_str("\\x");
    let room = out.room(2 * bytes.len());
    for (pair, b) in room.chunks_exact_mut(2).zip(bytes) {
        pair.copy_from_slice(&[DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
    }
    out.used(2 * bytes.len());
}

/// One byte; nothing when it is 0, octal from 128 on (since 15; before, the byte itself, which is no text in UTF-8 but may be one in the
/// encoding of the database).
fn char_(b: &[u8], out: &mut Text) -> Option<()> {
    match *b.first()? {
        0 => Some(()),
        c @ 1..=127 => show(char::from(c), out),
        c => match out.encoding().and_then(|encoding| encoding.char_type(c)) {
            Some(c) => show(c, out),
            None => show(format_args!("\\{c:03o}"), out),
        },
    }
}

fn bits(b: &[u8], out: &mut Text) -> Option<()> {
    let (count, bits) = b.split_first_chunk()?;
    let count = usize::try_from(i32::from_le_bytes(*count)).ok()?;
    if bits.len() < count.div_ceil(8) {
        return None;
    }
    out.extend((0..count).map(|i| if bits[i / 8] << (i % 8) & 0x80 != 0 { '1' } else { '0' }));
    Some(())
}

/// pg_snapshot: the first transaction that still ran, the first that had not begun, and those between them that ran.
fn snapshot(b: &[u8], out: &mut Text) -> Option<()> {
    let (count, xids) = b.split_first_chunk()?;
    let count = u32::from_le_bytes(*count) as usize;
    let mut xids = xids.chunks_exact(8).map(|xid| xid.iter().rev().fold(0u64, |all, b| all << 8 | u64::from(*b)));
    show(format_args!("{}:{}:", xids.next()?, xids.next()?), out)?;
    for i in 0..count {
        out.push_str(if i > 0 { "," } else { "" });
        show(xids.next()?, out)?;
    }
    Some(())
}

fn uuid(b: &[u8], out: &mut Text) -> Option<()> {
    let b: &[u8; 16] = b.first_chunk()?;
    for (i, byte) in b.iter().enumerate() {
        if matches!(i, 4 | 6 | 8 | 10) {
            out.push('-');
        }
        out.push_ascii([DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: Storage = Storage { attlen: -1, attalign: b'i' };

    /// What a value prints as when there is room left for this many bytes.
    fn with_room(types: &Types, oid: u32, bytes: &[u8], room: usize) -> String {
        let mut out = Text::new();
        out.room(LONGEST - room).fill(b'x');
        out.used(LONGEST - room);
        types.print(types.printer(oid), bytes, &mut out);
        out.into_string().split_off(LONGEST - room)
    }

    fn types(all: &[(u32, Kind)]) -> Types {
        let one = |(oid, kind): &(u32, Kind)| (*oid, Type { name: String::new(), storage: TEXT, kind: kind.clone() });
        Types { by_oid: Arc::new(all.iter().map(one).collect()), ..Types::default() }
    }

    #[test]
    fn more_text_than_a_value_has_is_none() {
        let mut types = types(&[(3802, Kind::Scalar), (3614, Kind::Scalar), (1700, Kind::Scalar)]);
        types.insert(7, Type { name: String::new(), storage: TEXT, kind: Kind::Composite(vec![(1700, TEXT); 2]) });
        // Ten words of a tsvector that are all the same 100 bytes.
        let words: Vec<u8> = [10u32].into_iter().chain([100 << 1; 10]).flat_map(u32::to_le_bytes).collect();
        let words = [words, vec![b'w'; 100]].concat();
        assert!(with_room(&types, 3614, &words, 1100).starts_with("'www"));
        assert!(with_room(&types, 3614, &words, 300).starts_with("\\x0a"));
        // A number of 131072 digits in eight bytes, twice.
        let row =
            [[0; 14].as_slice(), &[2, 0, 0, 0, 24], &[0], &[15, 0, 0, 0xff, 0x7f, 1, 0, 15, 0, 0, 0xff, 0x7f, 1, 0]]
                .concat();
        assert!(with_room(&types, 7, &row, 300_000).starts_with("(1000"));
        assert!(with_room(&types, 7, &row, 140_000).starts_with("\\x"));
        let mut json = [0x4000_0002u32, 0x1000_000c, 0x1000_000c].map(u32::to_le_bytes).concat();
        for _ in 0..2 {
            json.extend([10 << 2, 0, 0, 0, 0, 0, 0xff, 0x7f, 1, 0, 0, 0]);
        }
        assert!(with_room(&types, 3802, &json, 300_000).starts_with("[1000"));
        assert!(with_room(&types, 3802, &json, 140_000).starts_with("\\x"));
    }

    #[test]
    fn a_query_whose_items_name_each_other_ends() {
        let types = types(&[(3615, Kind::Scalar)]);
        let operator = |left: u8| [2, 2, 0, 0, left, 0, 0, 0, 0, 0, 0, 0];
        let word = |distance: u16| {
            [[1, 8, 1, 0, 0, 0, 0, 0].as_slice(), &(1u32 | u32::from(distance) << 12).to_le_bytes()].concat()
        };
        let query = |left: u8| [[3, 0, 0, 0].as_slice(), &operator(left), &word(0), &word(2), b"a\0b\0"].concat();
        assert_eq!(types.text(types.printer(3615), &query(2)), "'b':*A & 'a':*A");
        for left in [0, 1, 3, 255] {
            let text = types.text(types.printer(3615), &query(left));
            assert!(left == 1 || text.starts_with("\\x03"), "{left}: {text}");
        }
        assert!(types.text(types.printer(3615), &[0xff; 16]).starts_with("\\xff"));
    }

    #[test]
    fn a_path_whose_items_name_each_other_ends() {
        let types = types(&[(4072, Kind::Scalar)]);
        // Two items: each says how far the next one is, and what its arguments are.
        let path = |item: [u8; 12], next: u8| {
            let second = [27, 0, 0, 0, next, 0, 0, 0];
            types.text(types.printer(4072), &[[1, 0, 0, 0x80].as_slice(), &item, &second].concat())
        };
        assert_eq!(path([7, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0], 0), "($) is unknown");
        for (item, next) in [
            ([7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0),
            ([7, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0, 0], 8),
            ([7, 0, 0, 0, 12, 0, 0, 0, 12, 0, 0, 0], 0),
            ([23, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], 0),
            ([39, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0),
            ([200, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0),
            ([1, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff], 0),
        ] {
            let text = path(item, next);
            assert!(text.starts_with("\\x01"), "{item:?} {next}: {text}");
        }
    }

    #[test]
    fn types_that_share_others_are_looked_at_once_and_those_of_themselves_are_not_known() {
        // Each of two of the one below: 2^60 ways down.
        let mut all = vec![(0x1000, Kind::Enum(HashMap::new()))];
        all.extend((1..60).map(|i| (0x1000 + i, Kind::Composite(vec![(0x0fff + i, TEXT); 2]))));
        all.push((9, Kind::Composite(vec![(8, TEXT), (9, TEXT), (9, TEXT)])));
        all.push((8, Kind::Composite(vec![(9, TEXT), (8, TEXT), (8, TEXT)])));
        let types = types(&all);
        assert!(types.is_known(0x1000 + 59));
        assert!(!types.is_known(9) && !types.is_known(8));
    }
}
