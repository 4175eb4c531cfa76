//! What a server sends, cut into messages.

use std::io;

use leadline_protocol::backend::{head, HEAD};

/// Bytes read at once.
const PIECE: usize = 16 << 10;
/// A row that goes into variables is not longer than this.
const LONGEST_KEPT: usize = 16 << 20;

/// Bytes that came and were not looked at yet.
pub(crate) struct Input {
    bytes: Vec<u8>,
    from: usize,
    to: usize,
    /// Bytes of a row that nobody wants and that are still to come.
    skip: usize,
}

/// What a read found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Bytes(usize),
    Nothing,
}

impl Input {
    pub(crate) fn new() -> Input {
        Input { bytes: vec![0; PIECE], from: 0, to: 0, skip: 0 }
    }

    /// Reads once.
    pub(crate) fn read(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Came> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.to == self.bytes.len() {
            self.bytes.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
        }
        match read(&mut self.bytes[self.to..]) {
            Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                self.to += read;
                Ok(Came::Bytes(read))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(Came::Nothing),
            Err(e) => Err(e),
        }
    }

    /// The next whole message: its type and where its body is. Of rows that are not kept there is no body.
    pub(crate) fn message(&mut self, keep_rows: bool) -> io::Result<Option<(u8, std::ops::Range<usize>)>> {
        if self.skip > 0 {
            let here = self.skip.min(self.to - self.from);
            self.from += here;
            self.skip -= here;
        }
        let Some(bytes) = self.bytes[self.from..self.to].first_chunk::<HEAD>() else { return Ok(None) };
        let invalid = |said: &str| io::Error::new(io::ErrorKind::InvalidData, said.to_owned());
        let (kind, length) = head(*bytes).ok_or_else(|| invalid("the answer is not that of a PostgreSQL server"))?;
        let begins = self.from + HEAD;
        let is_row = matches!(kind, b'D' | b'd');
        if is_row && !(kind == b'D' && keep_rows) {
            self.from = begins + length.min(self.to - begins);
            self.skip = length - (self.from - begins);
            return Ok(Some((kind, begins..begins)));
        }
        if length > LONGEST_KEPT {
            return Err(invalid("a row for \\gset is longer than 16 MB"));
        }
        if self.to - begins < length {
            let wanted = HEAD + length;
            if self.bytes.len() - self.from < wanted {
                self.bytes.copy_within(self.from..self.to, 0);
                (self.from, self.to) = (0, self.to - self.from);
                self.bytes.resize(wanted.max(self.bytes.len()), 0);
            }
            return Ok(None);
        }
        self.from = begins + length;
        Ok(Some((kind, begins..begins + length)))
    }

    /// The body of a message, until the next read.
    pub(crate) fn body(&self, range: std::ops::Range<usize>) -> &[u8] {
        &self.bytes[range]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    /// Messages of bytes that come in pieces of this size.
    fn messages(bytes: &[u8], piece: usize, keep_rows: bool) -> io::Result<Vec<(u8, Vec<u8>)>> {
        let (mut server, mut client) = UnixStream::pair().unwrap();
        client.set_nonblocking(true).unwrap();
        let mut input = Input::new();
        let mut found = Vec::new();
        for piece in bytes.chunks(piece) {
            server.write_all(piece).unwrap();
            let mut left = piece.len();
            while left > 0 {
                let Came::Bytes(count) = input.read(|into| client.read(into))? else {
                    panic!("{left} bytes are there")
                };
                left -= count;
                while let Some((kind, range)) = input.message(keep_rows)? {
                    found.push((kind, input.body(range).to_vec()));
                }
            }
        }
        assert_eq!(input.read(|into| client.read(into))?, Came::Nothing);
        Ok(found)
    }

    #[test]
    fn messages_come_whole_however_they_were_cut() {
        let row = [b"D\0\0\x40\x04".as_slice(), &[7; 0x4000]].concat();
        let said = [b"T\0\0\0\x05a".as_slice(), &row, b"C\0\0\0\x05b", &row, b"Z\0\0\0\x05I"].concat();
        for piece in [1, 3, 1000, 10_000] {
            let passed = messages(&said, piece, false).unwrap();
            let kinds: Vec<u8> = passed.iter().map(|(kind, _)| *kind).collect();
            assert_eq!((kinds.as_slice(), passed[1].1.len()), (b"TDCDZ".as_slice(), 0), "{piece}");
            let kept = messages(&said, piece, true).unwrap();
            assert_eq!((kept[1].1.len(), kept[3].1.len(), kept[4].1.as_slice()), (0x4000, 0x4000, b"I".as_slice()));
        }
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        assert!(messages(b"HTTP/1.1 400 Bad Request", 100, false).is_err());
        assert!(messages(b"D\x7f\xff\xff\xff", 100, true).is_err());
        let (server, mut client) = UnixStream::pair().unwrap();
        drop(server);
        assert_eq!(Input::new().read(|into| client.read(into)).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
