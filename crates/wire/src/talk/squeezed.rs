//! The compressed protocol of MySQL: frames of compressed bytes, out of which comes a stream of packets.
//!
//! Frames are unpacked piece by piece as they come. Nothing of them is kept but the state of the decoder.

use flate2::{Decompress, FlushDecompress};
use zstd::stream::raw::{Decoder, Operation};

use super::frame::Lost;

/// Length of a frame, its number, and its length when it is unpacked: zero where it is not packed.
const HEAD: usize = 7;
/// Bytes that are unpacked at a time.
const PIECE: usize = 16 << 10;
/// The largest window that a decoder may take: 16 MB, as the longest frame.
const MOST_WINDOW_LOG: u32 = 24;

/// How frames are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Codec {
    Zlib,
    Zstd,
}

enum Unpack {
    Plain,
    Zlib(Decompress),
    Zstd(Decoder<'static>),
}

/// One direction.
pub struct Squeezed {
    codec: Codec,
    head: [u8; HEAD],
    head_done: usize,
    /// The frame that is being read: bytes of it that are to come, before and after they are unpacked.
    frame: Option<(Unpack, usize, usize)>,
}

impl std::fmt::Debug for Squeezed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Squeezed")
            .field("codec", &self.codec)
            .field("head_done", &self.head_done)
            .finish_non_exhaustive()
    }
}

/// Whether a segment is one frame with a command of a client: the whole of it, numbered zero.
pub fn is_squeezed_command(bytes: &[u8]) -> bool {
    matches!(bytes, [a, b, c, 0, _, _, _, _, ..] if three([*a, *b, *c]) == bytes.len() - HEAD)
}

fn three([a, b, c]: [u8; 3]) -> usize {
    u32::from_le_bytes([a, b, c, 0]) as usize
}

impl Squeezed {
    /// At the beginning of a frame.
    pub fn new(codec: Codec) -> Squeezed {
        Squeezed { codec, head: [0; HEAD], head_done: 0, frame: None }
    }

    /// Forgets a frame that was half read.
    pub fn reset(&mut self) {
        *self = Squeezed::new(self.codec);
    }

    /// Reads on: `on` gets the bytes of packets. A frame of which bytes were not captured cannot be unpacked.
    ///
    /// # Errors
    /// What comes is no such frame, or bytes of it are missing, or `on` cannot read what is in it.
    pub fn feed(
        &mut self,
        mut bytes: &[u8],
        unseen: u32,
        on: &mut impl FnMut(&[u8]) -> Result<(), Lost>,
    ) -> Result<(), Lost> {
        while !bytes.is_empty() {
            let Some((unpack, left, plain)) = &mut self.frame else {
                let take = (HEAD - self.head_done).min(bytes.len());
                let (now, rest) = bytes.split_at(take);
                self.head[self.head_done..self.head_done + take].copy_from_slice(now);
                self.head_done += take;
                bytes = rest;
                if self.head_done == HEAD {
                    self.frame = Some(self.begin()?);
                    self.head_done = 0;
                    self.end_empty();
                }
                continue;
            };
            let (now, rest) = bytes.split_at((*left).min(bytes.len()));
            unpacked(unpack, now, plain, on)?;
            *left -= now.len();
            bytes = rest;
            if *left == 0 && *plain > 0 {
                return Err(Lost); // the frame has less than it says
            }
            self.end_empty();
        }
        if unseen > 0 {
            return Err(Lost);
        }
        Ok(())
    }

    fn end_empty(&mut self) {
        if matches!(self.frame, Some((_, 0, _))) {
            self.frame = None;
        }
    }

    fn begin(&self) -> Result<(Unpack, usize, usize), Lost> {
        let [a, b, c, _, d, e, f] = self.head;
        let (left, plain) = (three([a, b, c]), three([d, e, f]));
        let unpack = match self.codec {
            _ if plain == 0 => return Ok((Unpack::Plain, left, left)),
            Codec::Zlib => Unpack::Zlib(Decompress::new(true)),
            Codec::Zstd => {
                let mut decoder = Decoder::new().map_err(|_| Lost)?;
                decoder.set_parameter(zstd::zstd_safe::DParameter::WindowLogMax(MOST_WINDOW_LOG)).map_err(|_| Lost)?;
                Unpack::Zstd(decoder)
            }
        };
        if left == 0 {
            return Err(Lost);
        }
        Ok((unpack, left, plain))
    }
}

/// Unpacks all of `bytes`. `plain`: how much may come out of them.
fn unpacked(
    unpack: &mut Unpack,
    mut bytes: &[u8],
    plain: &mut usize,
    on: &mut impl FnMut(&[u8]) -> Result<(), Lost>,
) -> Result<(), Lost> {
    let mut room = [0; PIECE];
    loop {
        let (read, written) = match unpack {
            Unpack::Plain => {
                *plain = plain.saturating_sub(bytes.len());
                return on(bytes);
            }
            Unpack::Zlib(decoder) => {
                let (read, written) = (decoder.total_in(), decoder.total_out());
                decoder.decompress(bytes, &mut room, FlushDecompress::None).map_err(|_| Lost)?;
                ((decoder.total_in() - read) as usize, (decoder.total_out() - written) as usize)
            }
            Unpack::Zstd(decoder) => {
                let status = decoder.run_on_buffers(bytes, &mut room).map_err(|_| Lost)?;
                (status.bytes_read, status.bytes_written)
            }
        };
        let Some(left) = plain.checked_sub(written) else { return Err(Lost) };
        *plain = left;
        bytes = bytes.get(read..).unwrap_or(&[]);
        if written > 0 {
            on(room.get(..written).unwrap_or(&[]))?;
        }
        if read == 0 && written == 0 || bytes.is_empty() && written < PIECE {
            // What is behind the end of the compressed bytes belongs to nothing.
            return if bytes.is_empty() { Ok(()) } else { Err(Lost) };
        }
    }
}
