//! What a call that returned means: a failure to remember, the success that resolves one, or a word on an output.

use crate::calls::{self, Call, Class, Weight};
use crate::dns;
use crate::filter;
use crate::memory;
use crate::refused::{base, detail, given_path, keep, path_of, Refused};
use crate::resolve;
use crate::sockets;
use crate::speech;
use crate::state::{Begun, Recent, State};
use libc as c;

const MOST_RECENT: usize = 64;
const MOST_LIBRARIES: usize = 64;

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
        sockets::remember_address(f, pid, call, begun);
    }
    let weight = calls::weight_of(call, errno);
    if weight == Weight::Nothing {
        return;
    }
    let Some(at) = f.running.get(&pid).and_then(|running| running.at) else { return };
    let mut path = begun.program.clone().or_else(|| path_of(pid, call, &begun.args));
    let mut given = given_path(pid, call, &begun.args).or_else(|| path.clone()).unwrap_or_default();
    let address = sockets::address_of(f, pid, call, begun);
    if address.as_ref().is_some_and(|(_, port)| *port == Some(dns::PORT)) {
        let server = address.as_ref().map_or("", |(name, _)| name);
        sockets::asked(f, pid, begun.args[0] as i32, server, None);
    }
    let address = address.map(|(name, _)| name);
    // A socket that has a path is refused as files are.
    if let Some(name) = address.as_ref().filter(|name| path.is_none() && name.starts_with('/')) {
        path = Some(name.clone().into_bytes());
        given = name.clone().into_bytes();
    }
    let detail = detail(pid, call, &begun.args);
    // Of two paths the one that is not there is meant.
    if let Some(from) = detail["from"].as_str().filter(|_| errno == c::ENOENT && detail["from_exists"] == false) {
        given = base(from.as_bytes()).to_vec();
        path = Some(from.as_bytes().to_vec());
    }
    let name = path.clone().or_else(|| address.clone().map(String::into_bytes)).unwrap_or_default();
    if weight == Weight::IfSaid && call.class == Class::Open {
        library_absent(f, at, &name);
    }
    let mut kept = None;
    if weight == Weight::Kept {
        let by_filter = !begun.reached && may_be_refused(f, pid, call, errno);
        kept = keep(f, pid, at, Refused { call, errno, path, address, by_filter, detail: detail.clone() });
        if let Some(kept) = kept {
            resolve::remember(f, pid, kept);
            if matches!(call.class, Class::Ask | Class::Exec | Class::Map) {
                f.refused.entry(base(&name).to_vec()).or_default().push(kept);
            }
        }
    }
    let ts_ns = f.now_ns();
    if let Some(running) = f.running.get_mut(&pid).filter(|_| !speech::is_of_messages(&name)) {
        if running.recent.len() == MOST_RECENT {
            running.recent.pop_front();
        }
        running.recent.push_back(Recent { call, errno, name, given, detail, ts_ns, kept, overtaken: false });
    }
}

/// The call did not reach our filter: another answered it. Some calls pass ours unseen for some arguments.
fn may_be_refused(f: &State, pid: i32, call: &Call, errno: i32) -> bool {
    let every = f.running.get(&pid).is_some_and(|running| running.every);
    let partly = filter::PARTLY.contains(&call.nr);
    every && f.filtered && !partly && [c::EPERM, c::EACCES, c::ENOSYS].contains(&errno)
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

// -- successes ---------------------------------------------------------------------------------------------------------

fn succeeded(f: &mut State, pid: i32, call: &'static Call, begun: &Begun, result: i64) {
    let args = &begun.args;
    resolve::succeeded(f, pid, call, begun);
    match call.class {
        Class::Open => opened(f, pid, call, args),
        Class::Write if args[0] == 1 || args[0] == 2 => speech::heard(f, pid, call, args),
        Class::Map if args[2] & c::PROT_EXEC as u64 != 0 && call.nr == c::SYS_mmap && !f.refused.is_empty() => {
            if let Some(path) = path_of(pid, call, args) {
                resolve::by_name(f, base(&path), &[Class::Ask, Class::Map]);
            }
        }
        Class::Ask if !f.refused.is_empty() && is_exec_question(call, args) => {
            if let Some(path) = path_of(pid, call, args) {
                resolve::by_name(f, base(&path), &[Class::Ask]);
            }
        }
        Class::Net => sockets::talked(f, pid, call, begun, result),
        Class::Kill => killed(f, call, args),
        Class::Limit => limited(f, pid, call, args),
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

/// A limit on the time on the CPU, the only one that the kernel enforces by a signal alone.
fn limited(f: &mut State, pid: i32, call: &Call, args: &[u64; 6]) {
    let (who, which, value) = match call.nr {
        c::SYS_setrlimit => (0, args[0], args[1]),
        _ => (args[0], args[1], args[2]),
    };
    let pid = i32::try_from(who).ok().filter(|who| *who > 0).unwrap_or(pid);
    let hard = memory::read(pid, value.saturating_add(8), 8).try_into().map(u64::from_le_bytes).ok();
    if let Some(running) = f.running.get_mut(&pid).filter(|_| which == u64::from(c::RLIMIT_CPU)) {
        running.cpu_limit_s = hard.filter(|seconds| *seconds != c::RLIM_INFINITY);
    }
}

/// A program took the place of the process.
pub(crate) fn executed(f: &mut State, pid: i32, program: Vec<u8>) {
    let Some(at) = f.running.get(&pid).and_then(|running| running.at) else { return };
    resolve::executed(f, at, &program);
    let now = f.now_ns();
    let group = f.out_of_memory.group_of(pid);
    if let Some(running) = f.running.get_mut(&pid) {
        running.recent.clear();
        running.connecting.clear();
        running.open.clear();
        running.lines = Default::default();
        running.group = group;
    }
    if let Some(process) = f.tree.processes.get_mut(at) {
        process.program = program;
        process.execs += 1;
        process.exec_ns = Some(now);
        process.libraries.clear();
        process.said.clear();
        process.first_error.clear();
        process.said_ns = None;
        process.printed.clear();
        process.printed_ns = None;
        process.lookups.clear();
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
