//! Strings that occur again: each once, and numbers in place of them.

use hashbrown::HashMap;
use leadline_parquet::Buffer;

/// Most bytes of a dictionary.
const DICTIONARY: usize = 1 << 20;

/// Strings and their numbers.
#[derive(Default)]
pub(super) struct Dictionary {
    numbers: HashMap<Box<[u8]>, u32>,
    pub plain: Buffer,
    pub count: u32,
    /// No more strings are taken: pages are PLAIN from here on.
    is_full: bool,
}

impl Dictionary {
    /// The numbers of strings; false when they would make it too large.
    pub(super) fn number(&mut self, plain: &[u8], numbers: &mut Vec<u32>) -> bool {
        numbers.clear();
        if self.is_full {
            return false;
        }
        for s in strings(plain) {
            if let Some(number) = self.numbers.get(s) {
                numbers.push(*number);
                continue;
            }
            if self.plain.len() + s.len() > DICTIONARY {
                self.is_full = true;
                return false;
            }
            let _ = string(s, &mut self.plain);
            self.numbers.insert(s.into(), self.count);
            numbers.push(self.count);
            self.count += 1;
        }
        true
    }
}

/// A string as PLAIN has it: its length and its bytes.
#[inline]
pub(super) fn string(b: &[u8], out: &mut Buffer) -> Option<()> {
    out.put(u32::try_from(b.len()).ok()?.to_le_bytes(), 4);
    out.put_slice(b);
    Some(())
}

/// The strings of PLAIN.
fn strings(mut plain: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = plain.split_first_chunk()?;
        let (string, rest) = rest.split_at_checked(u32::from_le_bytes(*len) as usize)?;
        plain = rest;
        Some(string)
    })
}

/// Whether most of the first strings occur more than once.
pub(super) fn repeats(plain: &[u8]) -> bool {
    const LOOKED_AT: usize = 2048;
    let mut seen = hashbrown::HashSet::new();
    let (mut all, mut different) = (0, 0);
    for string in strings(plain).take(LOOKED_AT) {
        all += 1;
        different += usize::from(seen.insert(string));
    }
    2 * different <= all
}
