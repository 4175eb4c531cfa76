//! A connection that is logged in and never blocks from here on: for a client that waits for many of them at once.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};

use rustls::ClientConnection;

use crate::address::Socket;

/// Plain or with TLS.
pub struct Channel {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
}

impl Channel {
    pub(crate) fn plain(socket: Socket) -> Channel {
        Channel { socket, tls: None }
    }

    pub(crate) fn encrypted(socket: TcpStream, connection: ClientConnection) -> Channel {
        Channel { socket: Socket::Tcp(socket), tls: Some(Box::new(connection)) }
    }

    /// Its file descriptor.
    pub fn fd(&self) -> RawFd {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_raw_fd(),
            Socket::Unix(socket) => socket.as_raw_fd(),
        }
    }

    /// Version and cipher of TLS.
    pub fn cipher(&self) -> Option<String> {
        let tls = self.tls.as_ref()?;
        let version = tls.protocol_version()?.as_str()?.replace('_', ".");
        Some(format!("{version} {}", tls.negotiated_cipher_suite()?.suite().as_str()?))
    }

    /// Reads what is there; `WouldBlock` if nothing is. 0: the other end has closed.
    pub fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let mut raw = Raw(self.fd());
        let Some(tls) = &mut self.tls else { return raw.read(into) };
        loop {
            // What was decrypted before comes first.
            match tls.reader().read(into) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            tls.read_tls(&mut raw)?;
            tls.process_new_packets().map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        }
    }

    /// Takes bytes, as many as there is room for; `WouldBlock` if there is none.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut raw = Raw(self.fd());
        let Some(tls) = &mut self.tls else { return raw.write(bytes) };
        let taken = tls.writer().write(bytes)?;
        match Self::send(tls, &mut raw) {
            // Encrypted bytes that wait for room go with `flush`.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock && taken == 0 => Err(e),
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => Err(e),
            _ => Ok(taken),
        }
    }

    /// Sends encrypted bytes that wait for room.
    pub fn flush(&mut self) -> io::Result<()> {
        let mut raw = Raw(self.fd());
        match &mut self.tls {
            Some(tls) => Self::send(tls, &mut raw),
            None => Ok(()),
        }
    }

    /// Whether there are any.
    pub fn wants_to_write(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.wants_write())
    }

    fn send(tls: &mut ClientConnection, raw: &mut Raw) -> io::Result<()> {
        while tls.wants_write() {
            tls.write_tls(raw)?;
        }
        Ok(())
    }
}

/// A socket that is read and written without waiting, however it was set.
struct Raw(RawFd);

impl Read for Raw {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the pointer and the length are those of the buffer.
        outcome(unsafe { libc::recv(self.0, into.as_mut_ptr().cast(), into.len(), libc::MSG_DONTWAIT) })
    }
}

impl Write for Raw {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the pointer and the length are those of the buffer.
        outcome(unsafe { libc::send(self.0, bytes.as_ptr().cast(), bytes.len(), flags) })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn outcome(count: isize) -> io::Result<usize> {
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}
