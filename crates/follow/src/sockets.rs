//! Connections that are made or refused, and what is asked of name servers.

use crate::calls::{self, About, Call, Class};
use crate::dns;
use crate::memory;
use crate::refused::{self, Refused};
use crate::state::{Begun, State};
use crate::tree::Lookup;
use libc as c;

const MOST_LOOKUPS: usize = 64;

pub(crate) fn address_of(f: &State, pid: i32, call: &Call, begun: &Begun) -> Option<(String, Option<u16>)> {
    if let About::Address(at, length) = call.about {
        return memory::address(&memory::read(pid, begun.args[at], (begun.args[length] as usize).min(128)));
    }
    (call.class == Class::Net).then(|| f.running.get(&pid)?.connecting.get(&(begun.args[0] as i32)).cloned())?.map(
        |name| {
            let port = name.rsplit(':').next().and_then(|port| port.parse().ok());
            (name, port)
        },
    )
}

pub(crate) fn remember_address(f: &mut State, pid: i32, call: &Call, begun: &Begun) {
    if !matches!(call.about, About::Address(..)) || call.nr != c::SYS_connect {
        return;
    }
    let Some((name, port)) = address_of(f, pid, call, begun) else { return };
    let fd = begun.args[0] as i32;
    if port == Some(dns::PORT) {
        asked(f, pid, fd, &name, None);
    }
    if let Some(running) = f.running.get_mut(&pid) {
        running.connecting.insert(fd, name);
    }
}

/// A question to a name server, or its answer.
pub(crate) fn asked(f: &mut State, pid: i32, fd: i32, server: &str, message: Option<(String, Option<u8>)>) {
    let Some(process) = f.running.get(&pid).and_then(|running| running.at).and_then(|at| f.tree.processes.get_mut(at))
    else {
        return;
    };
    let (name, code) = message.unwrap_or_default();
    let open =
        process.lookups.iter().rposition(|l| l.fd == fd && l.code.is_none() && (l.name.is_empty() || l.name == name));
    let room = process.lookups.len() < MOST_LOOKUPS;
    match open.and_then(|at| process.lookups.get_mut(at)) {
        Some(known) => {
            if !name.is_empty() {
                known.name = name;
            }
            known.code = code;
        }
        None if room => {
            process.lookups.push(Lookup { fd, server: server.to_string(), name, code });
        }
        None => {}
    }
}

pub(crate) fn talked(f: &mut State, pid: i32, call: &'static Call, begun: &Begun, result: i64) {
    let (fd, args) = (begun.args[0] as i32, &begun.args);
    match call.nr {
        c::SYS_connect => {
            remember_address(f, pid, call, begun);
            connected(f, pid, fd);
        }
        c::SYS_getsockopt if args[1] == c::SOL_SOCKET as u64 && args[2] == c::SO_ERROR as u64 => {
            let value = memory::read(pid, args[3], 4);
            let errno = value.try_into().map(i32::from_ne_bytes).unwrap_or(0);
            let address = f.running.get(&pid).and_then(|running| running.connecting.get(&fd).cloned());
            let (Some(address), Some(connect)) = (address, calls::find(c::SYS_connect)) else { return };
            if errno == 0 {
                connected(f, pid, fd);
            } else if let Some(at) = f.running.get(&pid).and_then(|running| running.at) {
                let refused = Refused {
                    call: connect,
                    errno,
                    path: None,
                    address: Some(address),
                    by_filter: false,
                    detail: serde_json::Value::Null,
                };
                refused::keep(f, pid, at, refused);
            }
        }
        c::SYS_sendto | c::SYS_recvfrom | c::SYS_sendmmsg => {
            let server = f.running.get(&pid).and_then(|running| running.connecting.get(&fd).cloned());
            let Some(server) = server.filter(|name| name.ends_with(":53")) else { return };
            // struct mmsghdr begins with a msghdr, whose third word is the list of buffers.
            let messages: Vec<Vec<u8>> = match call.nr {
                c::SYS_sendmmsg => (0..args[2].min(4))
                    .filter_map(|n| {
                        let list = memory::read(pid, args[1].checked_add(64 * n + 16)?, 16);
                        let [buffers, count] = [0, 8].map(|at| list.get(at..at + 8).and_then(|w| w.try_into().ok()));
                        Some(memory::gathered(
                            pid,
                            u64::from_le_bytes(buffers?),
                            u64::from_le_bytes(count?),
                            dns::LONGEST,
                        ))
                    })
                    .collect(),
                _ => vec![memory::read(pid, args[1], usize::try_from(result).unwrap_or(0).min(dns::LONGEST))],
            };
            for message in messages.iter().filter_map(|message| dns::parse(message)) {
                asked(f, pid, fd, &server, Some(message));
            }
        }
        _ => {}
    }
}

/// A connection resolves the attempts before it of this process. Name servers are asked over sockets of their own.
fn connected(f: &mut State, pid: i32, fd: i32) {
    let Some(running) = f.running.get(&pid) else { return };
    let (at, name) = (running.at, running.connecting.get(&fd));
    if name.is_none_or(|name| name.ends_with(":53") || name.starts_with('/')) {
        return;
    }
    for failure in
        f.tree.failures.iter_mut().filter(|failure| Some(failure.process) == at && failure.call.class == Class::Net)
    {
        failure.resolved = true;
    }
}
