//! The other end of `net rtt`: answers each request with as many bytes as it asks for. No login, no data, nothing stored.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use leadline_errors::{Error, Kind};
use parking_lot::Mutex;
use serde_json::{json, Value};

use crate::frame::{Header, HEADER};
use crate::piece::{Piece, PIECE};

/// Connections at a time; more are closed at once and counted.
const MOST_CONNECTIONS: usize = 1024;

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    refused: AtomicU64,
    not_ours: AtomicU64,
    requests: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    counts: Counts,
    open: Mutex<Vec<(u64, TcpStream)>>,
}

impl Shared {
    fn open(&self) -> parking_lot::MutexGuard<'_, Vec<(u64, TcpStream)>> {
        self.open.lock()
    }
}

/// A running server.
pub struct Echo {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl Echo {
    /// Listens at HOST and PORT; port 0 takes a free one.
    ///
    /// # Errors
    /// `connection` when it cannot listen there.
    pub fn start(host: &str, port: u16) -> Result<Echo, Error> {
        let listener = listen(host, port)?;
        let address = listener.local_addr().map_err(|e| cannot_listen(host, port, &e))?;
        let shared = Arc::new(Shared::default());
        let with = shared.clone();
        let acceptor = thread::Builder::new().name("leadline-echo".into()).spawn(move || accept(&listener, &with));
        let acceptor = acceptor.map_err(|e| cannot_listen(host, port, &e))?;
        Ok(Echo { address, shared, acceptor: Some(acceptor) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What it has done so far.
    pub fn counts(&self) -> Value {
        let c = &self.shared.counts;
        json!({
            "connections": c.connections.load(Relaxed),
            "refused_connections": c.refused.load(Relaxed),
            "other_protocols": c.not_ours.load(Relaxed),
            "requests": c.requests.load(Relaxed),
            "bytes_in": c.bytes_in.load(Relaxed),
            "bytes_out": c.bytes_out.load(Relaxed),
        })
    }

    /// Closes everything.
    pub fn stop(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.stop.store(true, Relaxed);
        wake(self.address);
        let _ = acceptor.join(); // it closes the connections first
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A listener that says well why there is none.
pub(crate) fn listen(host: &str, port: u16) -> Result<TcpListener, Error> {
    TcpListener::bind((host, port)).map_err(|e| cannot_listen(host, port, &e))
}

fn cannot_listen(host: &str, port: u16, e: &io::Error) -> Error {
    let hint = match e.kind() {
        io::ErrorKind::AddrInUse => "another program listens there: choose another port, or 0 for a free one",
        io::ErrorKind::PermissionDenied => "ports below 1024 need root or CAP_NET_BIND_SERVICE: choose another port",
        _ => "the address must be one of this host",
    };
    Error::new(Kind::Connection, "cannot listen there").detail(e.to_string()).hint(hint).at(format!("{host}:{port}"))
}

/// Ends an `accept` that waits: only a connection does.
pub(crate) fn wake(address: SocketAddr) {
    let mut at = address;
    if at.ip().is_unspecified() {
        at.set_ip(match at {
            SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
        });
    }
    let _ = TcpStream::connect_timeout(&at, std::time::Duration::from_secs(1)); // if it fails, it does not listen
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut workers: Vec<JoinHandle<()>> = Vec::new();
    for (number, stream) in (0_u64..).zip(listener.incoming()) {
        if shared.stop.load(Relaxed) {
            break;
        }
        workers.retain(|worker| !worker.is_finished());
        let Ok(stream) = stream else {
            thread::yield_now(); // a peer that is gone already, or no descriptor left: others may go
            continue;
        };
        let copy = stream.try_clone();
        let (Ok(copy), true) = (copy, workers.len() < MOST_CONNECTIONS) else {
            shared.counts.refused.fetch_add(1, Relaxed);
            continue;
        };
        shared.open().push((number, copy));
        shared.counts.connections.fetch_add(1, Relaxed);
        let with = shared.clone();
        let worker = thread::Builder::new().name("leadline-echo".into()).spawn(move || {
            let _ = serve(stream, &with.counts); // a connection that breaks concerns nobody else
            with.open().retain(|(other, _)| *other != number);
        });
        match worker {
            Ok(worker) => workers.push(worker),
            Err(_) => shared.open().retain(|(other, _)| *other != number),
        }
    }
    for (_, stream) in shared.open().iter() {
        let _ = stream.shutdown(Shutdown::Both);
    }
    for worker in workers {
        let _ = worker.join();
    }
}

/// Answers requests until the other end closes.
fn serve(mut stream: TcpStream, counts: &Counts) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Piece::new();
    let mut filled = 0;
    let mut out = Piece::new();
    loop {
        while filled < HEADER {
            match stream.read(&mut buffer[filled..])? {
                0 => return Ok(()),
                n => filled += n,
            }
        }
        let head: &[u8; HEADER] = buffer[..HEADER].try_into().expect("as many bytes");
        let Some(header) = Header::parse(head) else {
            counts.not_ours.fetch_add(1, Relaxed);
            return Ok(());
        };
        let mut missing = (HEADER + header.here as usize).saturating_sub(filled);
        let used = (HEADER + header.here as usize).min(filled);
        buffer.copy_within(used..filled, 0);
        filled -= used;
        while missing > 0 {
            let most = missing.min(PIECE);
            match stream.read(&mut buffer[..most])? {
                0 => return Ok(()),
                n => missing -= n,
            }
        }
        // From the memory just read, which is in the cache, unless the next request is in it already.
        let from = if filled == 0 { &mut buffer } else { &mut out };
        reply(&mut stream, from, Header { seq: header.seq, here: header.wanted, wanted: 0 })?;
        counts.requests.fetch_add(1, Relaxed);
        counts.bytes_in.fetch_add((HEADER + header.here as usize) as u64, Relaxed);
        counts.bytes_out.fetch_add((HEADER + header.wanted as usize) as u64, Relaxed);
    }
}

/// Writes a header and its payload, as one piece if it fits.
fn reply(stream: &mut TcpStream, out: &mut [u8], header: Header) -> io::Result<()> {
    let head: &mut [u8; HEADER] = (&mut out[..HEADER]).try_into().expect("as many bytes");
    header.put(head);
    let mut left = HEADER + header.here as usize;
    while left > 0 {
        let most = left.min(out.len());
        stream.write_all(&out[..most])?;
        left -= most;
    }
    Ok(())
}
