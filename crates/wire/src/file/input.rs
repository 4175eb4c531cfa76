//! The bytes of a file of packets: as they are, or unpacked if their first bytes say that they are compressed.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use leadline_errors::{Error, Kind};

/// As many first bytes as tell every kind of compression.
const HEAD: usize = 6;
/// Bytes taken at once from a compressed file.
const PIECE: usize = 1 << 16;
/// How long a pipe is waited for before its reader can look whether it is to stop.
const PATIENCE_MS: libc::c_int = 100;

/// A pipe whose reads end with `Interrupted` when nothing comes for a while. A signal that arrives just before a read begins does not
/// interrupt it, and would go unseen until more bytes come.
pub(super) struct Patient(pub(super) File);

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd, of a descriptor that is open.
        match unsafe { libc::poll(&mut poll, 1, PATIENCE_MS) } {
            0 => Err(io::ErrorKind::Interrupted.into()),
            -1 => Err(io::Error::last_os_error()),
            _ => self.0.read(buffer),
        }
    }
}

/// Bytes, unpacked. What it has read is kept when a read is interrupted.
pub(super) struct Unpacked {
    head: Vec<u8>,
    /// Until the first bytes have said what it is.
    packed: Option<Box<dyn Read + Send>>,
    plain: Option<Box<dyn Read + Send>>,
}

impl Unpacked {
    pub(super) fn new(input: impl Read + Send + 'static) -> Unpacked {
        Unpacked { head: Vec::new(), packed: Some(Box::new(input)), plain: None }
    }
}

impl Read for Unpacked {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(packed) = &mut self.packed {
            while self.head.len() < HEAD {
                let mut byte = [0];
                match packed.read(&mut byte)? {
                    0 => break,
                    _ => self.head.push(byte[0]),
                }
            }
        }
        if let Some(packed) = self.packed.take() {
            self.plain = Some(by_head(std::mem::take(&mut self.head), packed)?);
        }
        self.plain.as_mut().map_or(Ok(0), |plain| plain.read(buffer))
    }
}

fn by_head(head: Vec<u8>, input: Box<dyn Read + Send>) -> io::Result<Box<dyn Read + Send>> {
    let is = |magic: &[u8]| head.starts_with(magic);
    let (gzip, lz4) = (is(&[0x1F, 0x8B]), is(&[4, 0x22, 0x4D, 0x18]));
    let zstd = is(&[0x28, 0xB5, 0x2F, 0xFD]) || matches!(head[..], [0x50..=0x5F, 0x2A, 0x4D, 0x18, ..]);
    let other = if is(b"\xFD7zXZ\0") { "xz" } else { "bzip2" };
    if other == "xz" || matches!(head[..], [b'B', b'Z', b'h', b'1'..=b'9', ..]) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, other));
    }
    let input = io::Cursor::new(head).chain(input);
    let pieces = |input| io::BufReader::with_capacity(PIECE, input);
    Ok(match () {
        () if gzip => Box::new(flate2::bufread::MultiGzDecoder::new(pieces(input))),
        () if zstd => Box::new(zstd::stream::read::Decoder::with_buffer(pieces(input))?),
        () if lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(pieces(input))),
        () => Box::new(input),
    })
}

/// A signal came while bytes were waited for.
pub(super) fn interrupted() -> Error {
    Error::new(Kind::Gone, "interrupted")
}

/// Bytes that cannot be unpacked are damage of the file; anything else is not its fault.
pub(super) fn unreadable(e: &io::Error) -> Error {
    use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof, Unsupported};
    match e.kind() {
        Unsupported if e.raw_os_error().is_none() => {
            Error::new(Kind::Unsupported, "this file is compressed in a way that is not read")
                .detail(format!("it is compressed by {e}; gzip, zstd and lz4 are read"))
                .hint(format!("{e} -dc FILE | leadline net packets --pcap -"))
        }
        InvalidData | InvalidInput | Other | UnexpectedEof if e.raw_os_error().is_none() => {
            Error::new(Kind::Invalid, format!("the compressed bytes cannot be unpacked: {e}"))
        }
        _ => Error::new(Kind::Storage, format!("the packets cannot be read: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Interrupted before each byte.
    struct Trickle(io::Cursor<Vec<u8>>, bool);

    impl Read for Trickle {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let one = buffer.len().min(1);
            self.0.read(&mut buffer[..one])
        }
    }

    #[test]
    fn nothing_is_lost_when_reads_are_interrupted() {
        let plain: Vec<u8> = (0..3000u32).flat_map(|n| (n * n).to_le_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
        lz4.write_all(&plain).unwrap();
        let zstd = zstd::stream::encode_all(&plain[..], 1).unwrap();
        for packed in [plain.clone(), gzip.finish().unwrap(), lz4.finish().unwrap(), zstd] {
            let mut input = Unpacked::new(Trickle(io::Cursor::new(packed), false));
            let (mut found, mut interrupted) = (Vec::new(), 0);
            let mut buffer = [0; 4096];
            loop {
                match input.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => found.extend_from_slice(&buffer[..n]),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => interrupted += 1,
                    Err(e) => panic!("{e}"),
                }
            }
            assert!(found == plain && interrupted > 5, "{} {interrupted}", found.len());
        }
    }

    #[test]
    fn a_pipe_in_which_nothing_comes_gives_its_reader_a_turn() {
        let (reader, mut writer) = io::pipe().unwrap();
        let mut input = Unpacked::new(Patient(File::from(std::os::fd::OwnedFd::from(reader))));
        let mut buffer = [0; 64];
        assert_eq!(input.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::Interrupted);
        writer.write_all(b"\x1F\x8B").unwrap(); // as far as it goes, this may be gzip
        assert_eq!(input.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::Interrupted);
        drop(writer);
        assert_eq!(input.read(&mut buffer).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
