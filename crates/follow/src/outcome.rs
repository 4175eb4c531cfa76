//! What a call that returned means: a failure to remember, the success that resolves one, or a word on the error output.

use crate::calls::{self, About, Call, Class};
use crate::dns;

use crate::look;
use crate::memory;
use crate::state::{Begun, Recent, State};
use crate::tree::{Failure, Lookup};
use libc as c;
use serde_json::Value;

const MOST_RECENT: usize = 64;
const MOST_LIBRARIES: usize = 64;
const MOST_LOOKUPS: usize = 64;
/// Bytes of an error message that are looked at.
const SAID: usize = 512;

/// The program that an exec names.
pub(crate) fn program_of(pid: i32, nr: i64, args: &[u64; 6]) -> Option<Vec<u8>> {
    let call = calls::find(nr).filter(|call| call.class == Class::Exec)?;
    path_of(pid, call, args)
}

/// The absolute path that a call names, or what its descriptor stands for.
fn path_of(pid: i32, call: &Call, args: &[u64; 6]) -> Option<Vec<u8>> {
    match call.about {
        About::Path(n) => look::absolute(pid, None, &memory::string(pid, args[n])?),
        About::At(n) => look::absolute(pid, Some(args[n] as i32), &memory::string(pid, args[n + 1])?),
        About::Fd(n) => look::descriptor(pid, args[n] as i32),
        About::Address(..) | About::Nothing => None,
    }
}

fn base(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// `result` is the kernel's: -4095 to -1 is an error.
pub(crate) fn judge(f: &mut State, pid: i32, begun: &Begun, result: i64) {
    let Some(call) = calls::find(begun.nr) else { return };
    match i32::try_from(result) {
        Ok(negative @ -4095..=-1) => failed(f, pid, call, begun, -negative),
        _ => succeeded(f, pid, call, begun, result),
    }
}

// -- failures ----------------------------------------------------------------------------------------------------------

fn failed(f: &mut State, pid: i32, call: &'static Call, begun: &Begun, errno: i32) {
    f.tree.failed_calls += 1;
    if call.class == Class::Net && [c::EINPROGRESS, c::EALREADY].contains(&errno) {
        remember_address(f, pid, call, begun);
    }
    if calls::is_routine(call, errno) {
        return;
    }
    let Some(at) = f.running.get(&pid).and_then(|running| running.at) else { return };
    let path = begun.program.clone().or_else(|| path_of(pid, call, &begun.args));
    let address = address_of(f, pid, call, begun);
    if address.as_ref().is_some_and(|(_, port)| *port == Some(dns::PORT)) {
        asked(f, pid, begun.args[0] as i32, address.as_ref().map_or("", |(name, _)| name), None);
    }
    let address = address.map(|(name, _)| name);
    let absent = [c::ENOENT, c::ENOTDIR].contains(&errno);
    let name = path.clone().or_else(|| address.clone().map(String::into_bytes)).unwrap_or_default();
    let mut kept = None;
    if absent && matches!(call.class, Class::Open | Class::Ask) {
        if call.class == Class::Open {
            library_absent(f, at, &name);
        }
    } else {
        kept = keep(f, pid, at, call, errno, path, address, !begun.reached && may_be_refused(f, pid, call, errno));
        if let Some(kept) = kept.filter(|_| matches!(call.class, Class::Ask | Class::Exec | Class::Map)) {
            f.refused.entry(base(&name).to_vec()).or_default().push(kept);
        }
    }
    let ts_ns = f.now_ns();
    if let Some(running) = f.running.get_mut(&pid) {
        if running.recent.len() == MOST_RECENT {
            running.recent.pop_front();
        }
        running.recent.push_back(Recent { call, errno, name, ts_ns, kept });
    }
}

/// The call did not reach our filter: another answered it. Two calls pass ours unseen for some arguments.
fn may_be_refused(f: &State, pid: i32, call: &Call, errno: i32) -> bool {
    let every = f.running.get(&pid).is_some_and(|running| running.every);
    let partly = [c::SYS_newfstatat, c::SYS_mprotect].contains(&call.nr);
    every && f.filtered && !partly && [c::EPERM, c::EACCES, c::ENOSYS].contains(&errno)
}

#[allow(clippy::too_many_arguments)] // a failure has that many parts
fn keep(
    f: &mut State,
    pid: i32,
    at: usize,
    call: &'static Call,
    errno: i32,
    path: Option<Vec<u8>>,
    address: Option<String>,
    by_filter: bool,
) -> Option<usize> {
    let name = path.clone().or_else(|| address.clone().map(String::into_bytes)).unwrap_or_default();
    let ts_ns = f.now_ns();
    if let Some(known) = f.tree.again(at, call.nr, errno, &name, ts_ns) {
        return Some(known);
    }
    let facts = facts(pid, call, errno, path.as_deref());
    let failure = Failure {
        process: at,
        call,
        errno,
        path,
        address,
        ts_ns,
        count: 1,
        said: false,
        resolved: false,
        by_filter,
        facts,
    };
    f.tree.add_failure(&name, failure)
}

fn facts(pid: i32, call: &Call, errno: i32, path: Option<&[u8]>) -> Value {
    let locks = [c::SYS_mlock, c::SYS_mlock2, c::SYS_mlockall].contains(&call.nr);
    let mut facts = match errno {
        c::EMFILE | c::ENFILE | c::EFBIG | c::EAGAIN | c::ENOMEM => look::limit_facts(pid),
        c::EPERM if locks => look::limit_facts(pid),
        _ => path.filter(|path| path.starts_with(b"/")).map_or(Value::Null, |path| look::file_facts(pid, path)),
    };
    if let (Some(facts), true) = (facts.as_object_mut(), call.name.starts_with("inotify_")) {
        facts.insert("inotify".into(), look::inotify_limits(pid).into());
    }
    facts
}

fn library_absent(f: &mut State, at: usize, path: &[u8]) {
    let name = base(path);
    let is_library = name.ends_with(b".so") || name.windows(4).any(|part| part == b".so.");
    let Some(process) = f.tree.processes.get_mut(at).filter(|_| is_library) else { return };
    let folder = path[..path.len() - name.len()].to_vec();
    if let Some((_, folders)) = process.libraries.iter_mut().find(|(known, _)| known == name) {
        if folders.len() < MOST_LIBRARIES && !folders.contains(&folder) {
            folders.push(folder);
        }
    } else if process.libraries.len() < MOST_LIBRARIES {
        process.libraries.push((name.to_vec(), vec![folder]));
    }
}

// -- sockets -----------------------------------------------------------------------------------------------------------

fn address_of(f: &State, pid: i32, call: &Call, begun: &Begun) -> Option<(String, Option<u16>)> {
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

fn remember_address(f: &mut State, pid: i32, call: &Call, begun: &Begun) {
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
fn asked(f: &mut State, pid: i32, fd: i32, server: &str, message: Option<(String, Option<u8>)>) {
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

// -- successes ---------------------------------------------------------------------------------------------------------

fn succeeded(f: &mut State, pid: i32, call: &'static Call, begun: &Begun, result: i64) {
    let args = &begun.args;
    match call.class {
        Class::Open => opened(f, pid, call, args),
        Class::Write if args[0] == 2 => said(f, pid, call, args),
        Class::Map if args[2] & c::PROT_EXEC as u64 != 0 && call.nr == c::SYS_mmap && !f.refused.is_empty() => {
            if let Some(path) = path_of(pid, call, args) {
                resolve(f, base(&path));
            }
        }
        Class::Ask if !f.refused.is_empty() && is_exec_question(call, args) => {
            if let Some(path) = path_of(pid, call, args) {
                resolve(f, base(&path));
            }
        }
        Class::Net => talked(f, pid, call, begun, result),
        Class::Kill => killed(f, call, args),
        Class::Filter => {
            let sets = if call.nr == c::SYS_prctl { args[0] == c::PR_SET_SECCOMP as u64 } else { args[0] == 1 };
            if let Some(running) = f.running.get_mut(&pid).filter(|_| sets) {
                running.every = true;
            }
        }
        _ => {}
    }
}

/// access(X_OK) and its kin.
fn is_exec_question(call: &Call, args: &[u64; 6]) -> bool {
    let mode = match call.nr {
        c::SYS_access => args[1],
        c::SYS_faccessat | c::SYS_faccessat2 => args[2],
        _ => return false,
    };
    mode & c::X_OK as u64 != 0
}

/// A file of this name was found, may be executed, or was: what was refused before does not matter any more.
fn resolve(f: &mut State, name: &[u8]) {
    for at in f.refused.remove(name).unwrap_or_default() {
        if let Some(failure) = f.tree.failures.get_mut(at) {
            failure.resolved = true;
        }
    }
}

fn opened(f: &mut State, pid: i32, call: &Call, args: &[u64; 6]) {
    let Some(at) = f.running.get(&pid).and_then(|running| running.at) else { return };
    if f.tree.processes.get(at).is_none_or(|process| process.libraries.is_empty()) {
        return;
    }
    let Some(path) = path_of(pid, call, args) else { return };
    if let Some(process) = f.tree.processes.get_mut(at) {
        process.libraries.retain(|(name, _)| name != base(&path));
    }
}

/// A program took the place of the process.
pub(crate) fn executed(f: &mut State, pid: i32, program: Vec<u8>) {
    resolve(f, base(&program));
    let Some(at) = f.running.get(&pid).and_then(|running| running.at) else { return };
    if let Some(process) = f.tree.processes.get_mut(at) {
        process.program = program;
        process.execs += 1;
        process.libraries.clear();
        process.said.clear();
    }
    // Tried in other places, or as a script, before. A program of another machine is no script, though execvp has a shell read it.
    let elf = |failure: &Failure| failure.errno == c::ENOEXEC && failure.facts["content"]["form"] == "elf";
    for failure in f.tree.failures.iter_mut().filter(|f| f.process == at && f.call.class == Class::Exec) {
        failure.resolved |= !elf(failure);
    }
}

/// Words on the error output: of which of the last failures do they speak? By the system's text for the error, or the file's name.
fn said(f: &mut State, pid: i32, call: &Call, args: &[u64; 6]) {
    let words = match call.nr {
        c::SYS_write => memory::read(pid, args[1], (args[2] as usize).min(SAID)),
        c::SYS_writev => memory::gathered(pid, args[1], args[2], SAID),
        _ => return,
    };
    let Some((at, running)) = f.running.get(&pid).and_then(|running| Some((running.at?, running))) else { return };
    let name_said = |r: &Recent| base(&r.name).len() > 1 && holds(&words, base(&r.name));
    let text_said = |r: &Recent| holds(&words, error_text(r.errno).as_bytes());
    let found = running.recent.iter().rposition(|r| name_said(r) && text_said(r));
    let found = found
        .or_else(|| running.recent.iter().rposition(name_said))
        .or_else(|| running.recent.iter().rposition(text_said));
    let known = found.and_then(|n| running.recent.get(n)).map(|r| (r.call, r.errno, r.name.clone(), r.ts_ns, r.kept));
    if let Some(process) = f.tree.processes.get_mut(at) {
        // Some write their message in pieces.
        let fresh = process.said.last() == Some(&b'\n');
        process.said = if fresh { words } else { [process.said.as_slice(), &words].concat() };
        let over = process.said.len().saturating_sub(SAID);
        process.said.drain(..over);
    }
    let Some((call, errno, name, ts_ns, kept)) = known else { return };
    let kept = kept.or_else(|| {
        let kept = keep(f, pid, at, call, errno, Some(name), None, false)?;
        f.tree.failures.get_mut(kept)?.ts_ns = ts_ns;
        Some(kept)
    });
    if let Some(failure) = kept.and_then(|kept| f.tree.failures.get_mut(kept)) {
        failure.said = true;
    }
}

fn holds(words: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && words.windows(part.len()).any(|window| window == part)
}

/// As the C library says it in English.
fn error_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

fn talked(f: &mut State, pid: i32, call: &'static Call, begun: &Begun, result: i64) {
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
                keep(f, pid, at, connect, errno, None, Some(address), false);
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

/// A signal that a process of the command sent: if it ends another of them, that was meant.
fn killed(f: &mut State, call: &Call, args: &[u64; 6]) {
    let Ok(pid) = i32::try_from(args[0] as i64) else { return };
    if call.nr == c::SYS_pidfd_send_signal || args[1] == 0 && call.nr == c::SYS_kill {
        return;
    }
    for (other, running) in &f.running {
        if *other == pid || pid <= 0 || *other == -pid {
            if let Some(process) = running.at.and_then(|at| f.tree.processes.get_mut(at)) {
                process.killed_by_own = true;
            }
        }
    }
}
