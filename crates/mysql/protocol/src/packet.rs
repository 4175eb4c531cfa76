//! The head of a packet, and the byte that an answer begins with.

/// Bytes of a head.
pub const HEAD: usize = 4;
/// A packet of this length goes on in the next one.
pub const GOES_ON: u32 = 0xff_ffff;

/// An answer is: done.
pub const OK: u8 = 0x00;
/// More about the login, as the method has it.
pub const AUTH_MORE_DATA: u8 = 0x01;
/// The server asks for a file of the client's host.
pub const LOCAL_INFILE: u8 = 0xfb;
/// The end of columns or rows; in a login, another method.
pub const EOF: u8 = 0xfe;
/// An error.
pub const ERR: u8 = 0xff;

/// The length of the body that follows a head, and the number of the packet.
#[inline]
pub fn head([a, b, c, number]: [u8; HEAD]) -> (u32, u8) {
    (u32::from_le_bytes([a, b, c, 0]), number)
}

/// A packet. `body` is shorter than [`GOES_ON`].
pub fn packet(number: u8, body: &[u8]) -> Vec<u8> {
    let [a, b, c, _] = (body.len() as u32).to_le_bytes();
    [&[a, b, c, number], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_says_length_and_number() {
        let whole = packet(7, &[9; 70_000]);
        assert_eq!((head([whole[0], whole[1], whole[2], whole[3]]), whole.len()), ((70_000, 7), 70_004));
        assert_eq!(head([0xff, 0xff, 0xff, 0]), (GOES_ON, 0));
    }
}
