//! Frames of lz4, one behind the other: `cat a.lz4 b.lz4` is a file of both.
//!
//! A file that is cut off between two blocks ends there without an error: who reads it knows how long it should be.

use std::io::{self, BufRead, Read};

use lz4_flex::frame::FrameDecoder;

/// Reads frame after frame.
pub(crate) struct Frames<R: BufRead> {
    frame: FrameDecoder<R>,
}

impl<R: BufRead> Frames<R> {
    pub(crate) fn new(input: R) -> Frames<R> {
        Frames { frame: FrameDecoder::new(input) }
    }
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // A frame that ends says so by 0, though another follows.
        loop {
            let read = self.frame.read(into)?;
            if read > 0 || into.is_empty() || self.frame.get_mut().fill_buf()?.is_empty() {
                return Ok(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lz4_flex::frame::FrameEncoder;
    use std::io::Write;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut frame = FrameEncoder::new(Vec::new());
        frame.write_all(bytes).expect("to memory");
        frame.finish().expect("to memory")
    }

    #[test]
    fn all_frames_are_read_and_a_cut_one_is_an_error() {
        let both = [packed(b"one "), packed(b""), packed(b"two")].concat();
        let mut text = String::new();
        Frames::new(&both[..]).read_to_string(&mut text).expect("whole frames");
        assert_eq!(text, "one two");
        // Within the bytes of the last block, which the four of the mark of the end follow.
        for cut in 5..=4 + "two".len() {
            let left = &both[..both.len() - cut];
            assert!(Frames::new(left).read_to_end(&mut Vec::new()).is_err(), "{cut} bytes cut off");
        }
    }
}
