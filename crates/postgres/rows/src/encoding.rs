//! Texts of databases whose encoding is not UTF-8, as their server gives them to a client whose encoding is.
//!
//! All encodings that a database can have are ASCII below 128, and have no byte below 128 in any other character. What their other
//! characters are is in `data/encodings.csv`, as a server says it (`tests/support/server_encodings.py`); 13 to 18 say the same. SQL_ASCII says nothing of
//! its texts: the server hands them over when they are UTF-8, and refuses to when they are not. MULE_INTERNAL it converts to nothing.
//!
//! Source: src/include/mb/pg_wchar.h (`pg_enc`), src/common/wchar.c (lengths), src/backend/utils/mb/mbutils.c (`pg_server_to_any`).

use std::sync::atomic::{AtomicU64, Ordering};

use leadline_parquet::Buffer;

const CHARACTERS: &str = include_str!("../data/encodings.csv");

/// By their numbers.
#[rustfmt::skip]
const NAMES: [&str; 35] = [
    "SQL_ASCII", "EUC_JP", "EUC_CN", "EUC_KR", "EUC_TW", "EUC_JIS_2004", "UTF8", "MULE_INTERNAL", "LATIN1", "LATIN2", "LATIN3", "LATIN4",
    "LATIN5", "LATIN6", "LATIN7", "LATIN8", "LATIN9", "LATIN10", "WIN1256", "WIN1258", "WIN866", "WIN874", "KOI8R", "WIN1251", "WIN1252",
    "ISO_8859_5", "ISO_8859_6", "ISO_8859_7", "ISO_8859_8", "WIN1250", "WIN1253", "WIN1254", "WIN1255", "WIN1257", "KOI8U",
];
const SQL_ASCII: u32 = 0;
const EUC_TW: u32 = 4;
const EUC: std::ops::RangeInclusive<u32> = 1..=5;
pub(crate) const UTF8: u32 = 6;
/// The major from which on a "char" of 128 and more is printed in octal.
const OCTAL_SINCE: u32 = 15;

/// Bytes that say in EUC how long a character is (`SS2`, `SS3`).
const OF_KANA: u8 = 0x8e;
const OF_THREE: u8 = 0x8f;

/// Bytes of the longest character.
const LONGEST: usize = 4;

/// What a character becomes, by the last seven bits of its byte; of characters of several bytes what the next byte is looked up in.
type Row = [Step; 128];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    /// Two, where Unicode has no single one.
    Characters(char, Option<char>),
    /// The number of a row.
    Row(usize),
}

/// An encoding other than UTF-8.
#[derive(Debug)]
pub struct Encoding {
    number: u32,
    /// The first one is for first bytes.
    rows: Vec<Row>,
    /// Whether the type "char" is printed as the byte that it is: before 15. Since then it is in octal.
    prints_bytes: bool,
    /// Characters of values that are in no table.
    unconverted: AtomicU64,
}

impl Encoding {
    /// By its number; None for UTF-8. One that is not known has nothing beside ASCII.
    pub fn of(number: u32, major: u32) -> Option<Encoding> {
        if number == UTF8 {
            return None;
        }
        let name = NAMES.get(number as usize).copied().unwrap_or_default();
        let mut encoding = Encoding::empty(number, major < OCTAL_SINCE);
        let lines = CHARACTERS.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(',')?.split_once(','));
        for (first, characters) in lines {
            encoding.add(first, characters);
        }
        Some(encoding)
    }

    /// UTF-8 with values of the type "char" in it, of which a server of this major may print what is no UTF-8; else None.
    pub(crate) fn of_bytes(major: u32) -> Option<Encoding> {
        (major < OCTAL_SINCE).then(|| Encoding::empty(UTF8, true))
    }

    fn empty(number: u32, prints_bytes: bool) -> Encoding {
        Encoding { number, rows: vec![[Step::None; 128]], prints_bytes, unconverted: AtomicU64::new(0) }
    }

    /// As the server calls it.
    pub fn name(&self) -> &'static str {
        NAMES.get(self.number as usize).copied().unwrap_or("an unknown encoding")
    }

    /// Characters of values so far that cannot be converted.
    pub fn unconverted(&self) -> u64 {
        self.unconverted.load(Ordering::Relaxed)
    }

    /// Whether texts are given as they are stored.
    pub(crate) fn is_utf8(&self) -> bool {
        matches!(self.number, SQL_ASCII | UTF8)
    }

    /// Counts from zero again.
    pub(crate) fn forget_unconverted(&self) {
        self.unconverted.store(0, Ordering::Relaxed);
    }

    /// Takes a line of the table: the bytes of its first character, and code points; `-` is a hole.
    fn add(&mut self, first: &str, characters: &str) {
        let bytes: Vec<u8> =
            (0..first.len() / 2).filter_map(|i| u8::from_str_radix(&first[2 * i..2 * i + 2], 16).ok()).collect();
        let Some((last, before)) = bytes.split_last() else { return };
        let mut row = 0;
        for byte in before {
            let place = usize::from(byte & 0x7f);
            if !matches!(self.rows[row][place], Step::Row(_)) {
                self.rows[row][place] = Step::Row(self.rows.len());
                self.rows.push([Step::None; 128]);
            }
            if let Step::Row(next) = self.rows[row][place] {
                row = next;
            }
        }
        for (step, one) in self.rows[row][usize::from(last & 0x7f)..].iter_mut().zip(characters.split(' ')) {
            let mut codes = one.split('+').map(|code| u32::from_str_radix(code, 16).ok().and_then(char::from_u32));
            if let Some(first) = codes.next().flatten() {
                *step = Step::Characters(first, codes.next().flatten());
            }
        }
    }

    /// Whether it matters where a text begins: the second byte of a character can also be a first one.
    pub(crate) fn needs_its_start(&self) -> bool {
        EUC.contains(&self.number)
    }

    /// How many bytes a character has, by its first one.
    fn length(&self, first: u8) -> usize {
        match first {
            _ if !EUC.contains(&self.number) => 1,
            OF_KANA if self.number == EUC_TW => 4,
            OF_THREE => 3,
            _ => 2,
        }
    }

    /// The character at the start of bytes of 128 and more: what it becomes, and how many bytes it has.
    fn character(&self, bytes: &[u8]) -> (Step, usize) {
        let Some(first) = bytes.first() else { return (Step::None, 0) };
        let len = self.length(*first).min(bytes.len());
        let mut step = Step::Row(0);
        for byte in &bytes[..len] {
            step = match step {
                Step::Row(row) => self.rows[row][usize::from(byte & 0x7f)],
                _ => Step::None,
            };
        }
        (step, len)
    }

    /// Adds a text as UTF-8, with U+FFFD for each character that cannot be converted; how many there were.
    fn convert(&self, text: &[u8], out: &mut Buffer) -> u64 {
        if self.is_utf8() {
            out.put_slice(String::from_utf8_lossy(text).as_bytes());
            return text.utf8_chunks().filter(|chunk| !chunk.invalid().is_empty()).count() as u64;
        }
        let (mut rest, mut unconverted) = (text, 0);
        while !rest.is_empty() {
            let ascii = rest.iter().position(|b| !b.is_ascii()).unwrap_or(rest.len());
            out.put_slice(&rest[..ascii]);
            rest = &rest[ascii..];
            // What is cut off in a character of several bytes takes nothing of the ASCII behind it.
            let high = rest.iter().take(LONGEST).position(u8::is_ascii).unwrap_or(rest.len().min(LONGEST));
            let (step, len) = self.character(&rest[..high]);
            rest = &rest[len..];
            match step {
                Step::Characters(first, second) => {
                    put(first, out);
                    second.into_iter().for_each(|c| put(c, out));
                }
                _ if len > 0 => {
                    put(char::REPLACEMENT_CHARACTER, out);
                    unconverted += 1;
                }
                _ => {}
            }
        }
        unconverted
    }

    /// The same for the text of a value, which is counted.
    pub(crate) fn convert_value(&self, text: &[u8], out: &mut Buffer) {
        let unconverted = self.convert(text, out);
        self.count(unconverted);
    }

    /// Counts what could not be converted in a name that became a value, or a part of one.
    pub(crate) fn count_in(&self, name: &str) {
        self.count(name.matches(char::REPLACEMENT_CHARACTER).count() as u64);
    }

    fn count(&self, unconverted: u64) {
        if unconverted > 0 {
            self.unconverted.fetch_add(unconverted, Ordering::Relaxed);
        }
    }

    /// A name of the catalog, or another text that is not counted.
    pub(crate) fn name_of(&self, name: &[u8]) -> String {
        let mut out = Buffer::default();
        self.convert(name, &mut out);
        String::from_utf8_lossy(out.bytes()).into_owned()
    }

    /// What a value of the type "char" is printed as, where it is no octal number.
    pub(crate) fn char_type(&self, byte: u8) -> Option<char> {
        match self.character(&[byte]) {
            _ if !self.prints_bytes => None,
            (Step::Characters(c, None), _) => Some(c),
            _ => {
                self.count(1);
                Some(char::REPLACEMENT_CHARACTER)
            }
        }
    }
}

fn put(c: char, out: &mut Buffer) {
    let mut word = [0; 4];
    let used = c.encode_utf8(&mut word).len();
    out.put(word, used);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(name: &str) -> u32 {
        NAMES.iter().position(|n| *n == name).unwrap() as u32
    }

    fn converted(name: &str, text: &[u8]) -> (String, u64) {
        let encoding = Encoding::of(number(name), 18).unwrap();
        let mut out = Buffer::default();
        out.put_slice(b"before ");
        encoding.convert_value(text, &mut out);
        (String::from_utf8(out.into_bytes()).unwrap().split_off("before ".len()), encoding.unconverted())
    }

    #[test]
    fn texts_become_utf_8() {
        for (name, text, as_utf8) in [
            ("LATIN1", &b"gr\xfcn \x85"[..], "grün \u{85}"),
            ("WIN1252", b"5 \x80", "5 €"),
            ("KOI8R", b"\xcd\xc9\xd2", "мир"),
            ("EUC_JP", b"\xc6\xfc\xcb\xdc \x8e\xb1 \x8f\xb0\xa1", "日本 ｱ 丂"),
            ("EUC_JIS_2004", b"\xa4\xf7x", "か\u{309a}x"),
            ("EUC_KR", b"\xc7\xd1", "한"),
            ("EUC_CN", b"\xd6\xd0", "中"),
            ("EUC_TW", b"\xc4\xe3\x8e\xa1\xc4\xe3\x8e\xa2\xa1\xa1", "中中乂"),
            ("SQL_ASCII", "grün".as_bytes(), "grün"),
        ] {
            assert_eq!(converted(name, text), (as_utf8.into(), 0), "{name}");
        }
        assert!(Encoding::of(UTF8, 18).is_none());
    }

    #[test]
    fn what_cannot_be_converted_is_replaced_and_counted() {
        for (name, text, as_utf8) in [
            ("WIN1252", &b"a\x81b\x81"[..], "a\u{fffd}b\u{fffd}"),
            // A row that has no characters, and what is cut off: by the end, or by ASCII.
            ("EUC_JP", b"\xf9\xa1\xc6\xfc", "\u{fffd}日"),
            ("EUC_JP", b"\xc6", "\u{fffd}"),
            ("EUC_JP", b"\x8f\xb0\"\xc6\xfc", "\u{fffd}\"日"),
            ("EUC_TW", b"\x8e\xa1\xc4", "\u{fffd}"),
            ("EUC_TW", b"\x8e\xb0\xc4\xe3\xc4\xe3", "\u{fffd}中"),
            ("MULE_INTERNAL", b"a\x81\xe9", "a\u{fffd}\u{fffd}"),
            ("SQL_ASCII", b"gr\xfcn", "gr\u{fffd}n"),
        ] {
            let count = as_utf8.matches('\u{fffd}').count() as u64;
            assert_eq!(converted(name, text), (as_utf8.into(), count), "{name}");
        }
        let unknown = Encoding::of(99, 18).unwrap();
        assert_eq!((unknown.name_of(b"a\xe9"), unknown.unconverted()), ("a\u{fffd}".into(), 0));
    }

    #[test]
    fn every_encoding_but_two_has_its_characters() {
        let characters = |number: u32| {
            Encoding::of(number, 18)
                .map_or(0, |e| e.rows.concat().iter().filter(|s| matches!(s, Step::Characters(..))).count())
        };
        let counts: Vec<usize> = (0..NAMES.len() as u32).map(characters).collect();
        let expected = [0, 13197, 7445, 8227, 19378, 11296, 0, 0, 128, 128, 121, 128];
        assert_eq!(counts[..12], expected);
        assert!(counts[12..].iter().all(|n| (83..=128).contains(n)), "{counts:?}");
    }

    #[test]
    fn a_char_is_its_byte_before_15() {
        let (latin, japanese) = (number("LATIN1"), number("EUC_JP"));
        let char_of = |number, major| {
            let encoding = Encoding::of(number, major).unwrap();
            (encoding.char_type(0xe9), encoding.unconverted())
        };
        assert_eq!((char_of(latin, 14), char_of(latin, 15)), ((Some('é'), 0), (None, 0)));
        for raw in [japanese, SQL_ASCII] {
            assert_eq!((char_of(raw, 14), char_of(raw, 15)), ((Some('\u{fffd}'), 1), (None, 0)));
        }
        assert!(Encoding::of_bytes(15).is_none());
        assert_eq!(Encoding::of_bytes(14).unwrap().char_type(0xc3), Some('\u{fffd}'));
    }
}
