//! The types that made tables have columns of.

use leadline_rows::tuple::Storage;

/// Oids of the types that are printed, with one (9999) that is not known.
pub(crate) const SCALARS: [u32; 44] = [
    16, 17, 18, 19, 20, 21, 22, 23, 25, 26, 27, 28, 29, 30, 114, 142, 600, 601, 602, 603, 604, 628, 650, 700, 701, 718,
    774, 790, 829, 869, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1266, 1560, 1700, 2950, 3220, 3614, 3802,
];
pub(crate) const UNKNOWN: u32 = 9999;

/// Where a type stands among those that the columns of a table are chosen from.
pub(crate) fn column(oid: u32) -> u8 {
    SCALARS.iter().position(|known| *known == oid).expect("a known type") as u8
}

/// How values of a type lie in a row.
pub(crate) fn storage(oid: u32) -> Storage {
    let (attlen, attalign) = match oid {
        16 | 18 => (1, b'c'),
        21 => (2, b's'),
        23 | 26 | 28 | 29 | 700 | 1082 | 16_402 => (4, b'i'),
        27 => (6, b's'),
        829 => (6, b'i'),
        19 => (64, b'c'),
        774 => (8, b'i'),
        20 | 701 | 790 | 1083 | 1114 | 1184 | 3220 => (8, b'd'),
        1266 => (12, b'd'),
        2950 => (16, b'c'),
        600 | 1186 => (16, b'd'),
        628 | 718 => (24, b'd'),
        601 | 603 => (32, b'd'),
        602 | 604 => (-1, b'd'),
        _ => (-1, b'i'),
    };
    Storage { attlen, attalign }
}
