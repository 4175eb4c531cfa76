//! Strings that occur again: each once, and numbers in place of them.

use hashbrown::HashMap;
use leadline_parquet::Buffer;

use super::strings::Strings;

/// Most bytes of a dictionary.
const DICTIONARY: usize = 1 << 20;

/// Strings and their numbers.
#[derive(Default)]
pub(super) struct Dictionary {
    numbers: HashMap<Box<[u8]>, u32>,
    /// The strings as PLAIN has them.
    pub plain: Buffer,
    pub count: u32,
    /// No more strings are taken: pages are without it from here on.
    is_full: bool,
}

impl Dictionary {
    /// The numbers of strings; false when they would make it too large.
    pub(super) fn number(&mut self, strings: &Strings, numbers: &mut Vec<u32>) -> bool {
        numbers.clear();
        if self.is_full {
            return false;
        }
        for s in strings.iter() {
            if let Some(number) = self.numbers.get(s) {
                numbers.push(*number);
                continue;
            }
            if self.plain.len() + s.len() > DICTIONARY {
                self.is_full = true;
                return false;
            }
            self.plain.put((s.len() as u32).to_le_bytes(), 4);
            self.plain.put_slice(s);
            self.numbers.insert(s.into(), self.count);
            numbers.push(self.count);
            self.count += 1;
        }
        true
    }
}
