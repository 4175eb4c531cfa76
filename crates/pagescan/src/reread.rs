//! A look at a page, and further looks at one that is wrong: a running server may be writing it.

use leadline_page::postgres::{check, Fork, Verdict};

/// A page that is wrong is looked at so often in all.
pub(crate) const LOOKS: usize = 3;

/// Reads a page again, of which the `first` look found that it is not sound, until it is or it was looked at often enough.
///
/// `page` then holds what was read last. What was found in it, and whether its bytes changed between the looks: wrong and
/// different each time is torn, as far as can be told. `read` says whether there still is such a page.
pub fn look_again<T>(
    page: &mut [u8],
    first: T,
    mut look: impl FnMut(&[u8]) -> T,
    is_sound: impl Fn(&T) -> bool,
    mut read: impl FnMut(&mut [u8]) -> bool,
) -> (T, bool) {
    let mut before = page.to_vec();
    let (mut found, mut changed) = (first, false);
    for _ in 1..LOOKS {
        if !read(page) {
            page.copy_from_slice(&before);
            break;
        }
        found = look(page);
        changed |= *page != before[..];
        if is_sound(&found) {
            break;
        }
        before.copy_from_slice(page);
    }
    (found, changed)
}

/// [`check`] with the widest vector registers this machine has: the checksum takes most of the time.
#[cfg(target_arch = "x86_64")]
pub fn check_fast(page: &[u8], fork: Fork, block: Option<u32>) -> Verdict {
    #[target_feature(enable = "avx2")]
    fn check_avx2(page: &[u8], fork: Fork, block: Option<u32>) -> Verdict {
        check(page, fork, block)
    }
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the machine has AVX2, as was just asked.
        unsafe { check_avx2(page, fork, block) }
    } else {
        check(page, fork, block)
    }
}

/// [`check`]: this machine has no registers of its own for it.
#[cfg(not(target_arch = "x86_64"))]
pub fn check_fast(page: &[u8], fork: Fork, block: Option<u32>) -> Verdict {
    check(page, fork, block)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at a page of one byte: sound when it is even. `reads` are what the file gives, one after the other.
    fn looks(first: u8, reads: &[u8]) -> (bool, bool, u8) {
        let mut page = [first];
        let mut reads = reads.iter();
        let sound = |p: &[u8]| p[0].is_multiple_of(2);
        let read = |p: &mut [u8]| reads.next().map(|b| p[0] = *b).is_some();
        let (sound, changed) = look_again(&mut page, false, sound, |sound| *sound, read);
        (sound, changed, page[0])
    }

    #[test]
    fn a_page_is_read_until_it_is_sound_and_no_more_than_three_times() {
        assert_eq!(looks(1, &[2, 3]), (true, true, 2));
        assert_eq!(looks(1, &[3, 4]), (true, true, 4));
        assert_eq!(looks(1, &[3, 5, 6]), (false, true, 5));
        assert_eq!(looks(1, &[1, 1, 2]), (false, false, 1));
        assert_eq!(looks(1, &[]), (false, false, 1));
    }
}
