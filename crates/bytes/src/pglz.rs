//! pglz, the server's own compression: control bytes, each with eight items from its lowest bit on; a set bit is a reference
//! back (`common/pg_lzcompress.c`).

/// Unpacks into exactly `size` bytes; none when the input does not make them.
pub fn decompress(mut input: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(size);
    while out.len() < size {
        let (control, rest) = input.split_first()?;
        input = rest;
        for bit in 0..8 {
            if out.len() == size {
                break;
            }
            if control >> bit & 1 == 0 {
                let (literal, rest) = input.split_first()?;
                out.push(*literal);
                input = rest;
                continue;
            }
            let (tag, rest) = input.split_at_checked(2)?;
            input = rest;
            let mut length = usize::from(tag[0] & 0x0F) + 3;
            let back = usize::from(tag[0] & 0xF0) << 4 | usize::from(tag[1]);
            if length == 18 {
                let (more, rest) = input.split_first()?;
                length += usize::from(*more);
                input = rest;
            }
            let from = out.len().checked_sub(back).filter(|_| back > 0)?;
            // The copied bytes may overlap those being written: a short pattern repeats.
            for at in from..from + length.min(size - out.len()) {
                out.push(out[at]);
            }
        }
    }
    input.is_empty().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_repeat_and_may_be_long() {
        // "ab", then 20 bytes from two back: 18 in the tag, 2 more in the next byte.
        assert_eq!(decompress(&[0b100, b'a', b'b', 0x0F, 2, 2], 22).unwrap(), b"ab".repeat(11));
        assert_eq!(decompress(&[0, b'x', b'y'], 2).unwrap(), b"xy");
    }

    #[test]
    fn bad_input_gives_nothing() {
        for (input, size) in [
            (&[][..], 1),
            (&[1, 0, 1][..], 9),
            (&[0, b'x'][..], 2),
            (&[2, b'x', 0, 0][..], 9),
            (&[0, b'x', b'y'][..], 1),
        ] {
            assert_eq!(decompress(input, size), None, "{input:?}");
        }
    }
}
