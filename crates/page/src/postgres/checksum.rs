//! The data checksum of a page: 32 FNV-1a sums side by side, folded to 16 bits with the block's number.
//!
//! Source: src/include/storage/checksum_impl.h (PostgreSQL 9.3 and later). The sums do not depend on each other, so that the
//! compiler can keep them in vector registers.

use super::header::at;

/// Sums kept side by side; each takes every 32nd word of the page.
const SUMS: usize = 32;
const FNV_PRIME: u32 = 16_777_619;

/// Where the sums begin.
#[rustfmt::skip]
const BASE: [u32; SUMS] = [
    0x5B1F_36E9, 0xB852_5960, 0x02AB_50AA, 0x1DE6_6D2A, 0x79FF_467A, 0x9BB9_F8A3, 0x217E_7CD2, 0x83E1_3D2C,
    0xF8D4_474F, 0xE39E_B970, 0x42C6_AE16, 0x9932_16FA, 0x7B09_3B5D, 0x98DA_FF3C, 0xF718_902A, 0x0B1C_9CDB,
    0xE58F_764B, 0x1876_36BC, 0x5D7B_3BB1, 0xE73D_E7DE, 0x92BE_C979, 0xCCA6_C0B2, 0x304A_0979, 0x85AA_43D4,
    0x7831_25BB, 0x6CA8_EAA2, 0xE407_EAC6, 0x4B5C_FC3E, 0x9FBF_8C76, 0x15CA_20BE, 0xF2CA_9FD3, 0x959B_D756,
];

/// What `pd_checksum` of this page should be. `block` counts from the beginning of the fork, not of the file.
///
/// The stored checksum itself is not part of it, nor are bytes behind the last full 128.
pub fn checksum(page: &[u8], block: u32) -> u16 {
    checksum_inline(page, block)
}

/// The same, to be compiled again inside of a caller that may use wider vector registers than every machine has.
#[inline(always)]
pub fn checksum_inline(page: &[u8], block: u32) -> u16 {
    let mut sums = BASE;
    let mut rows = page.chunks_exact(4 * SUMS).filter_map(|row| row.first_chunk());
    if let Some(first) = rows.next() {
        let mut first: [u8; 4 * SUMS] = *first;
        first[at::CHECKSUM..at::CHECKSUM + 2].fill(0);
        mix(&mut sums, &first);
        for row in rows {
            mix(&mut sums, row);
        }
    }
    let zeros = [0; 4 * SUMS];
    mix(&mut sums, &zeros);
    mix(&mut sums, &zeros);
    let folded = sums.iter().fold(0, |all, sum| all ^ sum) ^ block;
    (folded % 65535 + 1) as u16 // 1 to 65535: 0 stays free for "none"
}

#[inline(always)]
fn mix(sums: &mut [u32; SUMS], row: &[u8; 4 * SUMS]) {
    for (i, sum) in sums.iter_mut().enumerate() {
        let mixed = *sum ^ u32::from_le_bytes([row[4 * i], row[4 * i + 1], row[4 * i + 2], row[4 * i + 3]]);
        *sum = mixed.wrapping_mul(FNV_PRIME) ^ (mixed >> 17);
    }
}
