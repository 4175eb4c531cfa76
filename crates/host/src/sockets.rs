//! TCP connections of one server as the kernel sees them: rows of `tcp_sample`.

use leadline_clockwork::{OpenTables, OwnedRow, Tick};
use leadline_errors::{Error, Kind};
use leadline_sockdiag::{Diag, Socket};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

/// Connections to one port of a server and its children.
#[derive(Debug)]
pub struct SocketsProbe {
    diag: Diag,
    server: Arc<Mutex<(u32, u16)>>,
    owners: Owners,
}

impl SocketsProbe {
    /// `pid`: the server, whose children serve its connections. An error where the kernel does not tell of sockets.
    pub fn open(pid: u32, port: u16) -> Result<Self, Error> {
        let mut diag = Diag::open().map_err(|e| refused(&e))?;
        diag.of_port(port).map_err(|e| refused(&e))?;
        Ok(SocketsProbe { diag, server: Arc::new(Mutex::new((pid, port))), owners: Owners::new(pid) })
    }

    /// Pid and port, to be replaced when the server has started again.
    pub fn server(&self) -> Arc<Mutex<(u32, u16)>> {
        self.server.clone()
    }

    /// Whether it may be seen which process has which connection: of processes of other users, only with the right to trace them.
    pub fn sees_owners(&self) -> bool {
        std::fs::read_dir(format!("/proc/{}/fd", self.owners.server)).is_ok()
    }
}

impl Tick for SocketsProbe {
    fn tick(&mut self, ts: i64, tables: &mut OpenTables) -> Result<(), Error> {
        let (pid, port) = *self.server.lock();
        if pid != self.owners.server {
            self.owners = Owners::new(pid);
        }
        let sockets = self.diag.of_port(port).map_err(|e| refused(&e))?;
        self.owners.find(&sockets);
        let rows: Vec<OwnedRow> = sockets.iter().map(|s| row(s, ts, self.owners.pid_of(s.inode))).collect();
        tables.write_rows("tcp_sample", rows.iter().map(OwnedRow::row))?;
        Ok(())
    }
}

fn refused(e: &io::Error) -> Error {
    Error::new(Kind::Unsupported, "the kernel does not tell of TCP connections (sock_diag)")
        .detail(e.to_string())
        .hint("load the modules inet_diag and tcp_diag, or leave out the probe sockets")
}

fn row(socket: &Socket, ts: i64, pid: Option<i64>) -> OwnedRow {
    let mut row = OwnedRow::default();
    row.int(ts).int(socket.cookie).maybe(pid);
    for (address, port) in [socket.local, socket.remote] {
        row.text(address.to_string()).int(port);
    }
    row.text(socket.state()).int(socket.receive_queue).int(socket.send_queue);
    for number in socket.numbers {
        row.maybe(number);
    }
    row
}

/// Which process has which socket open: the server or a child of it.
#[derive(Debug)]
struct Owners {
    server: u32,
    pids: HashMap<i64, i64>,
    /// Children that had no connection when they were looked at, such as a checkpointer: they will not get one.
    without: HashSet<u32>,
}

impl Owners {
    fn new(server: u32) -> Self {
        Owners { server, pids: HashMap::new(), without: HashSet::new() }
    }

    /// None: of a process that may not be looked into, or of none.
    fn pid_of(&self, inode: i64) -> Option<i64> {
        self.pids.get(&inode).copied()
    }

    /// Looks for the owners of sockets that were not there before.
    fn find(&mut self, sockets: &[Socket]) {
        let there: HashSet<i64> = sockets.iter().map(|s| s.inode).collect();
        self.pids.retain(|inode, _| there.contains(inode));
        let mut wanted: HashSet<i64> = there.into_iter().filter(|inode| !self.pids.contains_key(inode)).collect();
        if wanted.is_empty() {
            return;
        }
        let children = children_of(self.server);
        self.without.retain(|pid| children.contains(pid));
        // The youngest first: a new connection is served by a new process.
        for pid in children.into_iter().rev().chain([self.server]) {
            if wanted.is_empty() {
                break;
            }
            if self.without.contains(&pid) {
                continue;
            }
            let open = sockets_of(pid);
            if open.is_empty() && pid != self.server {
                self.without.insert(pid);
            }
            for inode in open {
                if wanted.remove(&inode) {
                    self.pids.insert(inode, own_pid(pid));
                }
            }
        }
    }
}

fn children_of(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The inodes of the sockets that a process has open.
fn sockets_of(pid: u32) -> Vec<i64> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter_map(|link| link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()).collect()
}

/// The pid by which a process in a container calls itself.
fn own_pid(pid: u32) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let inner = status.lines().find_map(|line| line.strip_prefix("NSpid:")?.split_whitespace().last()?.parse().ok());
    inner.unwrap_or(i64::from(pid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_connection_has_its_owner_and_as_many_values_as_the_table_has_columns() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let _here = TcpStream::connect(address).unwrap();
        let _there = listener.accept().unwrap();
        let mut probe = SocketsProbe::open(std::process::id(), address.port()).unwrap();
        let found = probe.diag.of_port(address.port()).unwrap();
        probe.owners.find(&found);
        assert_eq!(probe.owners.pid_of(found[0].inode), Some(i64::from(std::process::id())));
        let columns = leadline_capture::spec("tcp_sample").unwrap().columns.len();
        assert_eq!(row(&found[0], 1, None).row().len(), columns);
    }
}
