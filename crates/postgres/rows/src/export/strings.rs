//! The strings of a page as DELTA_LENGTH_BYTE_ARRAY.

use leadline_parquet::{put_delta, Buffer};

use crate::value::Text;

/// Strings one behind the other.
#[derive(Default)]
pub(super) struct Strings {
    lengths: Vec<i32>,
    /// Bytes of a bytea are here too, though they are no text.
    text: Text,
}

impl Strings {
    /// Adds what `put` appends; nothing when it says None.
    #[inline]
    pub(super) fn push(&mut self, put: impl FnOnce(&mut Text) -> Option<()>) -> Option<()> {
        let before = self.text.len();
        put(&mut self.text)?;
        self.lengths.push((self.text.len() - before) as i32);
        Some(())
    }

    /// Bytes of all.
    pub(super) fn len(&self) -> usize {
        self.text.len()
    }

    pub(super) fn count(&self) -> usize {
        self.lengths.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = self.text.as_bytes();
        self.lengths.iter().map_while(move |len| {
            let (string, behind) = rest.split_at_checked(*len as usize)?;
            rest = behind;
            Some(string)
        })
    }

    pub(super) fn put(&self, out: &mut Buffer) {
        put_delta(&self.lengths, false, out);
        out.put_slice(self.text.as_bytes());
    }

    /// Forgets all, and keeps room for the next ones, not more than `most` bytes.
    pub(super) fn clear(&mut self, most: usize) {
        self.lengths.clear();
        self.text.clear();
        self.text.shrink_to(most);
    }

    /// Whether most of the first ones occur more than once.
    pub(super) fn repeat(&self) -> bool {
        let mut seen = hashbrown::HashSet::new();
        let (mut all, mut different) = (0, 0);
        for string in self.iter().take(LOOKED_AT) {
            all += 1;
            different += usize::from(seen.insert(string));
        }
        2 * different <= all
    }
}

/// Strings of which is asked whether they occur again.
pub(super) const LOOKED_AT: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_first_and_what_was_not_put_is_no_string() {
        let mut strings = Strings::default();
        let push = |strings: &mut Strings, string: &str| {
            strings.push(|text| {
                text.push_str(string);
                Some(())
            });
            assert_eq!(strings.push(|_| None), None);
        };
        for string in ["ab", "", "abc", "ab"] {
            push(&mut strings, string);
        }
        assert!(strings.iter().eq([&b"ab"[..], b"", b"abc", b"ab"]));
        assert_eq!((strings.len(), strings.count(), strings.repeat()), (7, 4, false));
        push(&mut strings, "ab");
        push(&mut strings, "ab");
        assert!(strings.repeat());
        let (mut lengths, mut out) = (Buffer::default(), Buffer::default());
        put_delta(&[2, 0, 3, 2, 2, 2], false, &mut lengths);
        strings.put(&mut out);
        assert_eq!(out.bytes(), [lengths.bytes(), b"ababcababab"].concat());
        strings.clear(0);
        assert_eq!((strings.len(), strings.count()), (0, 0));
    }
}
