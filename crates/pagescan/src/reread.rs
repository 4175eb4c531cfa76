//! A look at a page, and further looks at one that is wrong: a running server may be writing it.

use leadline_page::postgres::{check, Fork, Verdict};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// So often the end of a file is read that is being written.
pub(crate) const LOOKS: usize = 3;
/// Before each further look at a page that is wrong, ms. A server that loses its CPU in the middle of a write leaves half of it to be seen
/// until it runs again, on a busy host for longer than two looks take.
const WAITS_MS: [u64; 5] = [0, 0, 1, 20, 200];
/// All waits of a process, ms: what is damaged for good costs no more than this, however many pages it is.
const PATIENCE_MS: u64 = 1000;
static WAITED_MS: AtomicU64 = AtomicU64::new(0);

/// False when the process has waited enough.
fn wait(ms: u64) -> bool {
    let patience = |waited: u64| (waited + ms <= PATIENCE_MS).then_some(waited + ms);
    if ms > 0 {
        if WAITED_MS.fetch_update(Relaxed, Relaxed, patience).is_err() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(ms));
    }
    true
}

/// Reads a page again, of which the `first` look found that it is not sound, until it is or it was looked at often enough.
///
/// `page` then holds what was read last. What was found in it, and whether its bytes changed between the looks: wrong and
/// different each time is torn, as far as can be told. `read` says whether there still is such a page.
pub fn look_again<T>(
    page: &mut [u8],
    first: T,
    look: impl FnMut(&[u8]) -> T,
    is_sound: impl Fn(&T) -> bool,
    read: impl FnMut(&mut [u8]) -> bool,
) -> (T, bool) {
    look_while(wait, page, first, look, is_sound, read)
}

fn look_while<T>(
    wait: impl Fn(u64) -> bool,
    page: &mut [u8],
    first: T,
    mut look: impl FnMut(&[u8]) -> T,
    is_sound: impl Fn(&T) -> bool,
    mut read: impl FnMut(&mut [u8]) -> bool,
) -> (T, bool) {
    let mut before = page.to_vec();
    let (mut found, mut changed) = (first, false);
    for ms in WAITS_MS {
        if !wait(ms) {
            break;
        }
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
    fn looks(wait: impl Fn(u64) -> bool, first: u8, reads: &[u8]) -> (bool, bool, u8) {
        let mut page = [first];
        let mut reads = reads.iter();
        let sound = |p: &[u8]| p[0].is_multiple_of(2);
        let read = |p: &mut [u8]| reads.next().map(|b| p[0] = *b).is_some();
        let (sound, changed) = look_while(wait, &mut page, false, sound, |sound| *sound, read);
        (sound, changed, page[0])
    }

    #[test]
    fn a_page_is_read_until_it_is_sound_or_was_waited_for_long_enough() {
        let patient = |reads: &[u8]| looks(|_| true, 1, reads);
        assert_eq!(patient(&[2, 3]), (true, true, 2));
        assert_eq!(patient(&[3, 4]), (true, true, 4));
        assert_eq!(patient(&[1, 1, 1, 1, 2]), (true, true, 2));
        assert_eq!(patient(&[1, 1, 1, 1, 1, 2]), (false, false, 1));
        assert_eq!(patient(&[]), (false, false, 1));
    }

    #[test]
    fn who_has_waited_enough_looks_twice_more() {
        let done = |reads: &[u8]| looks(|ms| ms == 0, 1, reads);
        assert_eq!(done(&[3, 4]), (true, true, 4));
        assert_eq!(done(&[3, 5, 6]), (false, true, 5));
    }

    #[test]
    fn a_process_waits_no_longer_than_its_patience() {
        let mut waited = 0;
        while wait(200) {
            waited += 200;
        }
        assert!(waited <= PATIENCE_MS && !wait(200) && wait(0));
    }
}
