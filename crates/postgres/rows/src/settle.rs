//! Pages that are read again when they are wrong: a running server may be writing them.

use leadline_page::postgres::{is_new, Fork, Header};
use leadline_pagescan::{check_fast, look_again};

/// What may be said of a page as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Settled {
    Sound,
    /// Its checksum is another than that of its bytes, which stay as they are.
    Damaged,
    /// Its bytes change, and never fit together.
    Torn,
}

/// A page with a checksum.
pub(crate) fn settle(page: &mut [u8], block: u32, read: impl FnMut(&mut [u8]) -> bool) -> Settled {
    let look = |page: &[u8]| match Header::parse(page) {
        Some(header) if header.pd_upper != 0 => {
            check_fast(page, Fork::Main, Some(block)).wrong.iter().all(|w| w.class != "checksum")
        }
        // The front of a page that is written for the first time may still be zeros.
        Some(header) => is_new(page, &header),
        None => true,
    };
    if look(page) {
        return Settled::Sound;
    }
    match look_again(page, false, look, |sound| *sound, read) {
        (true, _) => Settled::Sound,
        (false, true) => Settled::Torn,
        (false, false) => Settled::Damaged,
    }
}

/// A page without a checksum that was read twice.
pub(crate) fn settle_twice(page: &mut [u8], second: &mut [u8], read: impl FnMut(&mut [u8]) -> bool) -> Settled {
    if page == second {
        return Settled::Sound;
    }
    page.copy_from_slice(second);
    let look = |page: &[u8]| {
        let same = page == second;
        second.copy_from_slice(page);
        same
    };
    match look_again(page, false, look, |same| *same, read) {
        (true, _) => Settled::Sound,
        (false, _) => Settled::Torn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_page::postgres::checksum;

    /// A page without rows; `n` makes the bytes another.
    fn page(n: u8, sum: bool) -> Vec<u8> {
        let mut page = vec![0; 8192];
        for (at, value) in [(12, 24u16), (14, 8192), (16, 8192), (18, 8192 | 4)] {
            page[at..at + 2].copy_from_slice(&value.to_le_bytes());
        }
        page[5000] = n;
        let sum = if sum { checksum(&page, 7) } else { 1 };
        page[8..10].copy_from_slice(&sum.to_le_bytes());
        page
    }

    fn settled(twice: bool, looks: &[Vec<u8>]) -> (Settled, u8) {
        let mut looks = looks.iter();
        let mut page = looks.next().unwrap().clone();
        let mut second = if twice { looks.next().unwrap().clone() } else { Vec::new() };
        let read = |page: &mut [u8]| looks.next().map(|p| page.copy_from_slice(p)).is_some();
        let settled = if twice { settle_twice(&mut page, &mut second, read) } else { settle(&mut page, 7, read) };
        (settled, page[5000])
    }

    #[test]
    fn a_page_that_is_being_written_is_read_until_it_is_whole_or_left_out() {
        let (whole, wrong) = (|n| page(n, true), |n| page(n, false));
        assert_eq!(settled(false, &[whole(1)]), (Settled::Sound, 1));
        assert_eq!(settled(false, &[wrong(1), whole(2)]), (Settled::Sound, 2));
        assert_eq!(settled(false, &[wrong(1), wrong(2), whole(3)]), (Settled::Sound, 3));
        assert_eq!(settled(false, &(1..9).map(wrong).collect::<Vec<_>>()).0, Settled::Torn);
        assert_eq!(settled(false, &[wrong(1), wrong(1), wrong(1)]), (Settled::Damaged, 1));
        assert_eq!(settled(false, &[vec![0; 8192]]).0, Settled::Sound);
        assert_eq!(settled(true, &[whole(1), whole(1)]), (Settled::Sound, 1));
        assert_eq!(settled(true, &[whole(1), whole(2), whole(2)]), (Settled::Sound, 2));
        assert_eq!(settled(true, &[whole(1), whole(2), whole(3), whole(3)]), (Settled::Sound, 3));
        assert_eq!(settled(true, &(1..9).map(whole).collect::<Vec<_>>()).0, Settled::Torn);
    }
}
