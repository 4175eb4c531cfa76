//! A position in the log.

use std::fmt;
use std::str::FromStr;

/// Byte position in the log, written as the server does: `16/B374D848`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:X}/{:X}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl FromStr for Lsn {
    type Err = ();

    fn from_str(text: &str) -> Result<Lsn, ()> {
        let part = |half: &str| match half.len() {
            1..=8 if half.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(half, 16).map_err(|_| ()),
            _ => Err(()),
        };
        let (high, low) = text.split_once('/').ok_or(())?;
        Ok(Lsn(part(high)? << 32 | part(low)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_read_and_written_as_the_server_does() {
        assert_eq!("16/B374D848".parse(), Ok(Lsn(0x16_b374_d848)));
        assert_eq!(Lsn(0x1_0000_0028).to_string(), "1/28");
        for wrong in ["", "/", "1/", "/1", "1", "1/123456789", "+1/2", "g/1", "1/2/3"] {
            assert_eq!(wrong.parse::<Lsn>(), Err(()), "{wrong}");
        }
    }
}
