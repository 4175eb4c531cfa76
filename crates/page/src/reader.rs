//! A cursor that notes what it reads: the parser of a structure is at the same time its description.

use leadline_bytes::{Bytes, Endian, Truncated};

use crate::part::{Field, FieldKind, Part, Tid, Value, Wrong};

/// One bit (or a few) of a field: mask, the owner's name, words for people (none where another field's words say it).
pub type Flag = (u32, &'static str, &'static str);

/// Reads one part of a page from its beginning to its end.
///
/// What was read before an error stays in the part, so a broken structure still shows where it breaks.
pub struct Reader<'p> {
    bytes: Bytes<'p>,
    kind: FieldKind,
    part: Part,
}

type Result<T> = std::result::Result<T, Wrong>;

impl<'p> Reader<'p> {
    /// Over `page[start..end]`, or as much of that as there is. Offsets are those of the page.
    pub fn new(page: &'p [u8], endian: Endian, name: &'static str, kind: FieldKind, start: usize, end: usize) -> Self {
        let end = end.min(page.len());
        let start = start.min(end);
        let bytes = Bytes::new(&page[start..end], endian).at(start as u64);
        Reader { bytes, kind, part: Part { name, number: None, start, end, fields: Vec::new() } }
    }

    /// Says which of several parts this is.
    pub fn numbered(mut self, number: u32) -> Self {
        self.part.number = Some(number);
        self
    }

    /// Fields read from here on are of this kind.
    pub fn kind(&mut self, kind: FieldKind) -> &mut Self {
        self.kind = kind;
        self
    }

    /// Offset in the page of what comes next.
    pub fn offset(&self) -> usize {
        self.part.start + self.bytes.done()
    }

    /// Bytes not read yet.
    pub fn left(&self) -> usize {
        self.bytes.left()
    }

    /// Bytes not read yet, without reading them.
    pub fn rest(&self) -> &'p [u8] {
        self.bytes.rest()
    }

    /// Whether a field of this name was read.
    pub fn has(&self, name: &str) -> bool {
        self.part.field(name).is_some()
    }

    /// The part with the fields that were read.
    pub fn finish(self) -> Part {
        self.part
    }

    fn note(&mut self, name: &'static str, start: usize, value: Value) {
        let (len, kind) = (self.offset() - start, self.kind);
        self.part.fields.push(Field { name, start, len, kind, value, flags: Vec::new(), words: String::new() });
    }

    fn read<T>(
        &mut self,
        name: &'static str,
        how: impl FnOnce(&mut Bytes<'p>) -> leadline_bytes::Result<T>,
        value: impl FnOnce(&T) -> Value,
    ) -> Result<T> {
        let start = self.offset();
        match how(&mut self.bytes) {
            Ok(read) => {
                self.note(name, start, value(&read));
                Ok(read)
            }
            Err(e) => Err(self.truncated(&e)),
        }
    }

    fn truncated(&self, e: &Truncated) -> Wrong {
        Wrong {
            class: "truncated",
            what: e.what,
            item: self.part.number,
            offset: self.offset(),
            wanted: format!("{} bytes", e.wanted),
            found: format!("{} bytes", e.left),
        }
    }

    /// One byte.
    pub fn u8(&mut self, name: &'static str) -> Result<u8> {
        self.read(name, |b| b.u8(name), |v| Value::Number(u64::from(*v)))
    }

    /// Two bytes.
    pub fn u16(&mut self, name: &'static str) -> Result<u16> {
        self.read(name, |b| b.u16(name), |v| Value::Number(u64::from(*v)))
    }

    /// Four bytes.
    pub fn u32(&mut self, name: &'static str) -> Result<u32> {
        self.read(name, |b| b.u32(name), |v| Value::Number(u64::from(*v)))
    }

    /// Eight bytes.
    pub fn u64(&mut self, name: &'static str) -> Result<u64> {
        self.read(name, |b| b.u64(name), |v| Value::Number(*v))
    }

    /// Two bytes, signed.
    pub fn i16(&mut self, name: &'static str) -> Result<i16> {
        self.read(name, |b| b.i16(name), |v| Value::Signed(i64::from(*v)))
    }

    /// Four bytes, signed.
    pub fn i32(&mut self, name: &'static str) -> Result<i32> {
        self.read(name, |b| b.i32(name), |v| Value::Signed(i64::from(*v)))
    }

    /// Eight bytes, signed.
    pub fn i64(&mut self, name: &'static str) -> Result<i64> {
        self.read(name, |b| b.i64(name), |v| Value::Signed(*v))
    }

    /// Eight bytes, floating point.
    pub fn f64(&mut self, name: &'static str) -> Result<f64> {
        self.read(name, |b| b.u64(name).map(f64::from_bits), |v| Value::Real(*v))
    }

    /// One byte that says yes or no.
    pub fn truth(&mut self, name: &'static str) -> Result<bool> {
        self.read(name, |b| Ok(b.u8(name)? != 0), |v| Value::Truth(*v))
    }

    /// A position in the log: two halves, the high one first.
    pub fn lsn(&mut self, name: &'static str) -> Result<u64> {
        let both = |b: &mut Bytes<'p>| {
            let mut part = b.part(name, 8)?;
            Ok(u64::from(part.u32(name)?) << 32 | u64::from(part.u32(name)?))
        };
        self.read(name, both, |v| Value::Lsn(*v))
    }

    /// A position in the log as one number, as files other than pages have it.
    pub fn lsn64(&mut self, name: &'static str) -> Result<u64> {
        self.read(name, |b| b.u64(name), |v| Value::Lsn(*v))
    }

    /// Block and line pointer.
    pub fn tid(&mut self, name: &'static str) -> Result<Tid> {
        self.read(name, |b| Ok(Tid::parse(b.array(name)?)), |v| Value::Tid(*v))
    }

    /// `count` of them.
    pub fn tids(&mut self, name: &'static str, count: usize) -> Result<Vec<Tid>> {
        let all = |b: &mut Bytes<'p>| {
            let bytes = b.take(name, count.saturating_mul(6))?;
            Ok(bytes.chunks_exact(6).filter_map(|c| Some(Tid::parse(*c.first_chunk()?))).collect())
        };
        self.read(name, all, |v: &Vec<Tid>| Value::Tids(v.clone()))
    }

    /// `count` numbers of four bytes.
    pub fn u32s(&mut self, name: &'static str, count: usize) -> Result<Vec<u64>> {
        let all = |b: &mut Bytes<'p>| {
            let mut part = b.part(name, count.saturating_mul(4))?;
            (0..count).map(|_| part.u32(name).map(u64::from)).collect()
        };
        self.read(name, all, |v: &Vec<u64>| Value::Numbers(v.clone()))
    }

    /// `len` bytes as they are.
    pub fn bytes(&mut self, name: &'static str, len: usize) -> Result<&'p [u8]> {
        self.read(name, |b| b.take(name, len), |v| Value::Bytes(v.to_vec()))
    }

    /// `len` bytes as bits, the lowest of each byte first.
    pub fn bits(&mut self, name: &'static str, len: usize) -> Result<&'p [u8]> {
        let bits = |bytes: &&[u8]| bytes.iter().flat_map(|b| (0..8).map(move |i| b >> i & 1 == 1)).collect();
        self.read(name, |b| b.take(name, len), |v| Value::Bits(bits(v)))
    }

    /// All bytes up to `offset` in the page as they are; nothing when that is behind.
    pub fn bytes_to(&mut self, name: &'static str, kind: FieldKind, offset: usize) {
        let len = offset.saturating_sub(self.offset()).min(self.left());
        if len > 0 {
            let before = std::mem::replace(&mut self.kind, kind);
            let _ = self.bytes(name, len); // no more than there is: cannot fail
            self.kind = before;
        }
    }

    /// What follows from other fields, without bytes not shared with another item.
    pub fn derived(&mut self, name: &'static str, value: Value) -> &mut Self {
        let start = self.part.fields.last().map_or(self.part.start, |f| f.start);
        self.note(name, start, value);
        if let Some(last) = self.part.fields.last_mut() {
            last.len = 0;
        }
        self
    }

    /// Adds words to the field read last.
    pub fn words(&mut self, words: impl Into<String>) -> &mut Self {
        if let Some(last) = self.part.fields.last_mut() {
            last.words = words.into();
        }
        self
    }

    /// Gives the number read last its owner's name.
    pub fn named(&mut self, name: &'static str) -> &mut Self {
        if let Some(last) = self.part.fields.last_mut() {
            last.flags.push(name);
        }
        self
    }

    /// Names the bits of the number read last. Bits without a name stay visible as a number.
    pub fn flags(&mut self, table: &[Flag], value: u32) -> &mut Self {
        let Some(last) = self.part.fields.last_mut() else { return self };
        let set = table.iter().filter(|(mask, _, _)| value & mask == *mask && *mask != 0);
        let mut words = Vec::new();
        let mut known = 0;
        for (mask, name, meaning) in set {
            last.flags.push(name);
            if !meaning.is_empty() {
                words.push((*meaning).to_owned());
            }
            known |= mask;
        }
        if value & !known != 0 {
            words.push(format!("unknown bits {:#x}", value & !known));
        }
        last.words = words.join(", ");
        self
    }
}
