//! Fields of packets: texts that end with a zero, and numbers that say their length.

use leadline_bytes::{Bytes, Truncated};

/// A text up to a zero, or up to the end.
#[inline]
pub fn until_zero<'a>(bytes: &mut Bytes<'a>) -> &'a [u8] {
    let length = bytes.rest().iter().position(|byte| *byte == 0).unwrap_or(bytes.left());
    let text = bytes.take("text", length).unwrap_or(&[]);
    let _ = bytes.u8("end");
    text
}

/// A number of one to nine bytes.
///
/// # Errors
/// Bytes of it are missing.
#[inline]
pub fn lenenc(bytes: &mut Bytes<'_>) -> Result<u64, Truncated> {
    Ok(match bytes.u8("length")? {
        0xFC => bytes.u16("length")?.into(),
        0xFD => {
            let [a, b, c] = bytes.array("length")?;
            u32::from_le_bytes([a, b, c, 0]).into()
        }
        0xFE => bytes.u64("length")?,
        short => short.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use leadline_bytes::Endian;

    #[test]
    fn numbers_say_their_length() {
        let read = |bytes: &[u8]| lenenc(&mut Bytes::new(bytes, Endian::Little)).ok();
        let all: [(&[u8], _); 6] = [
            (&[250], Some(250)),
            (&[0xfc, 1, 2], Some(0x201)),
            (&[0xfd, 1, 2, 3], Some(0x3_0201)),
            (&[0xfe, 1, 0, 0, 0, 0, 0, 0, 1], Some((1 << 56) + 1)),
            (&[0xfd, 1, 2], None),
            (&[], None),
        ];
        all.into_iter().for_each(|(bytes, number)| assert_eq!(read(bytes), number, "{bytes:?}"));
    }

    #[test]
    fn a_text_ends_with_a_zero_or_with_the_packet() {
        let mut bytes = Bytes::new(b"one\0\0two", Endian::Little);
        assert_eq!(
            [until_zero(&mut bytes), until_zero(&mut bytes), until_zero(&mut bytes)],
            [&b"one"[..], b"", b"two"]
        );
        assert_eq!(until_zero(&mut bytes), b"");
    }
}
