//! Numbers and LSNs into text. `write!` takes five times as long, and is most of the time that a record takes to print.

use leadline_datadir::Lsn;

/// Adds a number.
#[inline]
pub(super) fn number(out: &mut String, n: impl itoa::Integer) {
    out.push_str(itoa::Buffer::new().format(n));
}

/// Adds an LSN as the server prints it.
#[inline]
pub(super) fn lsn(out: &mut String, lsn: Lsn) {
    hex(out, (lsn.0 >> 32) as u32);
    out.push('/');
    hex(out, lsn.0 as u32);
}

/// Adds a number with commas between thousands.
pub(super) fn grouped(out: &mut String, n: usize) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(n);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
}

#[inline]
fn hex(out: &mut String, n: u32) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let count = (8 - n.leading_zeros() / 4).max(1);
    for place in (0..count).rev() {
        out.push(char::from(DIGITS[(n >> (4 * place) & 0xF) as usize]));
    }
}
