//! The order of inet and cidr (src/backend/utils/adt/network.c, `network_cmp_internal`).

use std::cmp::Ordering;

/// Family, bits of the mask, address.
fn parts(bytes: &[u8]) -> Option<(u8, u8, &[u8])> {
    let [family, bits, address @ ..] = bytes else { return None };
    let wanted = if *family == 2 { 4 } else { 16 };
    (matches!(family, 2 | 3) && address.len() >= wanted && usize::from(*bits) <= 8 * wanted)
        .then(|| (*family, *bits, &address[..wanted]))
}

/// The first `count` bits of two addresses.
fn bits(a: &[u8], b: &[u8], count: u8) -> Ordering {
    let (whole, rest) = (usize::from(count / 8), count % 8);
    let last = |address: &[u8]| if rest == 0 { 0 } else { address[whole] >> (8 - rest) };
    a[..whole].cmp(&b[..whole]).then_with(|| last(a).cmp(&last(b)))
}

pub(super) fn compare(a: &[u8], b: &[u8]) -> Option<Ordering> {
    let ((a_family, a_bits, a), (b_family, b_bits, b)) = (parts(a)?, parts(b)?);
    if a_family != b_family {
        return Some(a_family.cmp(&b_family));
    }
    Some(bits(a, b, a_bits.min(b_bits)).then(a_bits.cmp(&b_bits)).then_with(|| a.cmp(b)))
}
