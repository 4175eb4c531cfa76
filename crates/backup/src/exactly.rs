//! A stream of a known length, and perhaps of a known digest: what is shorter is cut off, what is longer is not what it says it is.

use std::fmt;
use std::io::{self, ErrorKind, Read};

use sha1::{Digest, Sha1};

/// The bytes of a file are not those that the list of its backup has the digest of.
#[derive(Debug)]
pub struct Differs {
    /// Of the list, in hexadecimal digits.
    pub wanted: String,
    /// Of the bytes.
    pub found: String,
}

impl fmt::Display for Differs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its SHA-1 is {}, and that in the manifest is {}", self.found, self.wanted)
    }
}

impl std::error::Error for Differs {}

/// Gives so many bytes, or an error.
pub(crate) struct Exactly<R> {
    input: R,
    bytes: u64,
    left: u64,
    /// More is wrong, too: a stream that unpacks to more than its list says.
    is_all: bool,
    sum: Option<(Sha1, String)>,
}

impl<R: Read> Exactly<R> {
    /// Of an input in which other things may follow.
    pub(crate) fn next(input: R, bytes: u64) -> Exactly<R> {
        Exactly { input, bytes, left: bytes, is_all: false, sum: None }
    }

    /// Of an input that ends with them, and has this SHA-1 where it is known.
    pub(crate) fn all(input: R, bytes: u64, sha1: Option<&str>) -> Exactly<R> {
        Exactly { input, bytes, left: bytes, is_all: true, sum: sha1.map(|sum| (Sha1::new(), sum.to_owned())) }
    }

    /// At the end.
    fn finish(&mut self) -> io::Result<usize> {
        if self.is_all && self.input.read(&mut [0])? > 0 {
            let more = format!("it has more than the {} bytes that it should have", self.bytes);
            return Err(io::Error::new(ErrorKind::InvalidData, more));
        }
        if let Some((sum, wanted)) = self.sum.take() {
            let found: String = sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
            if found != wanted {
                return Err(io::Error::new(ErrorKind::InvalidData, Differs { wanted, found }));
            }
        }
        Ok(0)
    }
}

impl<R: Read> Read for Exactly<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        if self.left == 0 {
            return self.finish();
        }
        let most = usize::try_from(self.left).map_or(into.len(), |left| left.min(into.len()));
        let into = into.get_mut(..most).unwrap_or_default();
        match self.input.read(into)? {
            0 => {
                let detail = format!("it is cut off after {} of {} bytes", self.bytes - self.left, self.bytes);
                Err(io::Error::new(ErrorKind::UnexpectedEof, detail))
            }
            read => {
                self.left -= read as u64;
                if let Some((sum, _)) = &mut self.sum {
                    sum.update(into.get(..read).unwrap_or_default());
                }
                Ok(read)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(mut stream: Exactly<&[u8]>) -> Result<usize, String> {
        stream.read_to_end(&mut Vec::new()).map_err(|e| e.to_string())
    }

    #[test]
    fn it_is_as_long_as_it_should_be() {
        assert_eq!((read(Exactly::next(b"abcd", 3)), read(Exactly::all(b"abc", 3, None))), (Ok(3), Ok(3)));
        assert_eq!(read(Exactly::next(b"ab", 3)), Err("it is cut off after 2 of 3 bytes".into()));
        let longer = Err("it has more than the 3 bytes that it should have".into());
        assert_eq!(read(Exactly::all(b"abcd", 3, None)), longer);
    }

    #[test]
    fn its_digest_is_compared_at_the_end() {
        const SUM: &str = "a9993e364706816aba3e25717850c26c9cd0d89d";
        assert_eq!(read(Exactly::all(b"abc", 3, Some(SUM))), Ok(3));
        assert!(read(Exactly::all(b"abd", 3, Some(SUM))).is_err_and(|e| e.contains("its SHA-1 is")));
    }
}
