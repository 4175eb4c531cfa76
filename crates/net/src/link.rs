//! A connection on which messages are exchanged before a deadline: plain, over a unix socket, or with TLS.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustls::{ClientConnection, StreamOwned};

use crate::address::Socket;
use crate::channel::Channel;
use crate::fault::{Fault, Outcome};

/// Bytes that are read at once.
const PIECE: usize = 64 << 10;
/// A timeout of the socket that is so much too long is set anew before a read.
const SLACK: Duration = Duration::from_millis(20);

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    fn set_timeout(&self, timeout: Duration) -> io::Result<()> {
        let timeout = Some(timeout.max(Duration::from_micros(1)));
        match self {
            Stream::Tcp(s) => s.set_read_timeout(timeout).and_then(|()| s.set_write_timeout(timeout)),
            Stream::Unix(s) => s.set_read_timeout(timeout).and_then(|()| s.set_write_timeout(timeout)),
            Stream::Tls(s) => s.sock.set_read_timeout(timeout).and_then(|()| s.sock.set_write_timeout(timeout)),
        }
    }

    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Tcp(s) => s.read(into),
            Stream::Unix(s) => s.read(into),
            Stream::Tls(s) => s.read(into),
        }
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Stream::Tcp(s) => s.write_all(bytes),
            Stream::Unix(s) => s.write_all(bytes),
            Stream::Tls(s) => s.write_all(bytes).and_then(|()| s.flush()),
        }
    }
}

/// A connection. Whatever the other end does, no call returns later than the deadline.
pub struct Link {
    stream: Option<Stream>,
    deadline: Instant,
    set: Duration,
    /// Named in faults: what is being done.
    pub phase: &'static str,
    buffer: Vec<u8>,
    from: usize,
    to: usize,
    /// Bytes of payload sent and received, and how often a read waited for the other end.
    pub sent: u64,
    /// Received.
    pub received: u64,
    /// The file descriptor.
    pub fd: i32,
}

impl Link {
    /// Of a connected socket.
    pub fn new(socket: Socket, timeout: Duration) -> Link {
        let fd = socket.fd();
        let stream = match socket {
            Socket::Tcp(s) => Stream::Tcp(s),
            Socket::Unix(s) => Stream::Unix(s),
        };
        Link {
            stream: Some(stream),
            deadline: Instant::now() + timeout,
            set: Duration::MAX,
            phase: "connect",
            buffer: vec![0; PIECE],
            from: 0,
            to: 0,
            sent: 0,
            received: 0,
            fd,
        }
    }

    /// The connection itself, without what was read of it and not taken; None of one that failed.
    pub(crate) fn into_channel(self) -> Option<Channel> {
        Some(match self.stream? {
            Stream::Tcp(stream) => Channel::plain(Socket::Tcp(stream)),
            Stream::Unix(stream) => Channel::plain(Socket::Unix(stream)),
            Stream::Tls(stream) => {
                let StreamOwned { conn, sock } = *stream;
                Channel::encrypted(sock, conn)
            }
        })
    }

    /// Our address and that of the other end; None of a unix socket.
    pub fn addresses(&self) -> Option<(SocketAddr, SocketAddr)> {
        let stream = match self.stream.as_ref()? {
            Stream::Tcp(stream) => stream,
            Stream::Tls(stream) => &stream.sock,
            Stream::Unix(_) => return None,
        };
        stream.local_addr().ok().zip(stream.peer_addr().ok())
    }

    /// What follows is done by then.
    pub fn allow(&mut self, timeout: Duration) {
        self.deadline = Instant::now() + timeout;
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: &[u8]) -> Outcome<()> {
        self.ready()?;
        let phase = self.phase;
        let stream = self.stream.as_mut().ok_or_else(|| Fault::closed(phase))?;
        stream.write_all(bytes).map_err(|e| Fault::io(phase, &e))?;
        self.sent += bytes.len() as u64;
        Ok(())
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Outcome<&[u8]> {
        while self.to - self.from < n {
            self.fill(n)?;
        }
        self.from += n;
        Ok(&self.buffer[self.from - n..self.from])
    }

    /// Passes over the next `n` bytes.
    pub fn skip(&mut self, mut n: usize) -> Outcome<()> {
        loop {
            let here = n.min(self.to - self.from);
            self.from += here;
            n -= here;
            if n == 0 {
                return Ok(());
            }
            self.fill(1)?;
        }
    }

    /// Whether bytes have been read that nobody took.
    pub fn has_more(&self) -> bool {
        self.from < self.to
    }

    /// Reads once, into a buffer that has room for `n` bytes.
    fn fill(&mut self, n: usize) -> Outcome<()> {
        self.buffer.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        if self.buffer.len() < n {
            self.buffer.resize(n, 0);
        }
        loop {
            self.ready()?;
            let phase = self.phase;
            let stream = self.stream.as_mut().ok_or_else(|| Fault::closed(phase))?;
            match stream.read(&mut self.buffer[self.to..]) {
                Ok(0) => return Err(Fault::closed(phase)),
                Ok(n) => {
                    self.to += n;
                    self.received += n as u64;
                    return Ok(());
                }
                // Timeouts are looked at above, against the deadline.
                Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
                Err(e) => return Err(Fault::io(phase, &e)),
            }
        }
    }

    /// Sees to it that the next call of the system ends at the deadline.
    fn ready(&mut self) -> Outcome<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Fault::new(self.phase, "timeout", "no answer in time"));
        }
        if self.set > left + SLACK || self.set < left / 2 {
            if let Some(stream) = &self.stream {
                stream.set_timeout(left).map_err(|e| Fault::io(self.phase, &e))?;
            }
            self.set = left;
        }
        Ok(())
    }

    /// Goes on with TLS: does the handshake. Bytes that came before it are an attempt to slip something in.
    pub fn start_tls(&mut self, mut connection: ClientConnection) -> Outcome<()> {
        if self.has_more() {
            return Err(Fault::protocol("tls", "the server sent unencrypted bytes after it had agreed to TLS"));
        }
        let Some(Stream::Tcp(mut stream)) = self.stream.take() else {
            return Err(Fault::new("tls", "unsupported", "TLS is for TCP connections only"));
        };
        while connection.is_handshaking() {
            let left = self.deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Fault::new("tls", "timeout", "the handshake took too long"));
            }
            let set = stream.set_read_timeout(Some(left)).and_then(|()| stream.set_write_timeout(Some(left)));
            set.map_err(|e| Fault::io("tls", &e))?;
            while connection.wants_write() {
                connection.write_tls(&mut stream).map_err(|e| Fault::io("tls", &e))?;
            }
            if !connection.is_handshaking() {
                break;
            }
            if connection.read_tls(&mut stream).map_err(|e| Fault::io("tls", &e))? == 0 {
                return Err(Fault::closed("tls"));
            }
            connection.process_new_packets().map_err(|e| Fault::new("tls", "tls", e.to_string()))?;
        }
        while connection.wants_write() {
            connection.write_tls(&mut stream).map_err(|e| Fault::io("tls", &e))?;
        }
        self.stream = Some(Stream::Tls(Box::new(StreamOwned::new(connection, stream))));
        self.set = Duration::MAX;
        Ok(())
    }
}
