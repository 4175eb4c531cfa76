//! What a success says of the failures before it: another attempt at the same thing, so they explain nothing.

use crate::calls::{About, Call, Class};
use crate::memory;
use crate::refused::{base, path_of};
use crate::speech::is_of_messages;
use crate::state::{Begun, Recent, State};
use libc as c;

/// Failures of one process that wait for a later success.
const MOST_OPEN: usize = 64;

pub(crate) fn remember(f: &mut State, pid: i32, failure: usize) {
    if let Some(running) = f.running.get_mut(&pid).filter(|running| !running.open.contains(&failure)) {
        if running.open.len() == MOST_OPEN {
            running.open.remove(0);
        }
        running.open.push(failure);
    }
}

/// A call of a process has succeeded.
pub(crate) fn succeeded(f: &mut State, pid: i32, call: &Call, begun: &Begun) {
    if call.class == Class::Open {
        overtake(f, pid, call, begun);
    }
    let Some(running) = f.running.get(&pid).filter(|running| !running.open.is_empty()) else { return };
    let alike = |at: &usize| f.tree.failures.get(*at).is_some_and(|failure| is_alike(failure.call, call));
    let open: Vec<usize> = running.open.iter().copied().filter(alike).collect();
    if open.is_empty() {
        return;
    }
    let path = path_of(pid, call, &begun.args);
    let port = match call.about {
        About::Address(at, length) if call.nr == c::SYS_bind => {
            memory::address(&memory::read(pid, begun.args[at], (begun.args[length] as usize).min(128)))
        }
        _ => None,
    };
    for at in open {
        let Some(failure) = f.tree.failures.get_mut(at) else { continue };
        let same = match call.class {
            Class::Fork => true,
            Class::Map => is_room_for(&failure.detail, begun),
            // A server listens on several addresses of one port, and is content with one.
            Class::Net => port.as_ref().is_some_and(|(name, port)| {
                let wanted = failure.address.as_deref().unwrap_or_default();
                name == wanted || port.is_some_and(|port| wanted.ends_with(&format!(":{port}")))
            }),
            _ => failure.path == path,
        };
        failure.resolved |= same;
    }
    if let Some(running) = f.running.get_mut(&pid) {
        running.open.retain(|at| f.tree.failures.get(*at).is_some_and(|failure| !failure.resolved));
    }
}

/// A file was opened after others were not found: the process went on without them, and a line that names no file is not about them. What is
/// opened to print that line says nothing.
fn overtake(f: &mut State, pid: i32, call: &Call, begun: &Begun) {
    let Some(running) = f.running.get_mut(&pid) else { return };
    let is_open = |recent: &Recent| is_absence(recent.errno) && !recent.overtaken;
    if !running.recent.iter().any(is_open) {
        return;
    }
    let path = path_of(pid, call, &begun.args).unwrap_or_default();
    if path.starts_with(b"/dev/") || is_of_messages(&path) {
        return;
    }
    running.recent.iter_mut().filter(|recent| is_absence(recent.errno)).for_each(|recent| recent.overtaken = true);
}

fn is_absence(errno: i32) -> bool {
    [c::ENOENT, c::ENOTDIR].contains(&errno)
}

/// Whether success of the second call may make up for a failure of the first.
fn is_alike(failed: &Call, done: &Call) -> bool {
    match (failed.class, done.class) {
        // What was written and refused is not there, whatever is written later.
        (Class::Write, _) | (_, Class::Write) => false,
        (Class::Open | Class::Ask, Class::Open) | (Class::Ask, Class::Ask) | (Class::Fork, Class::Fork) => true,
        (Class::Lock, Class::Lock) | (Class::Map, Class::Map) => failed.nr == done.nr,
        (Class::Net, Class::Net) => failed.nr == c::SYS_bind && done.nr == c::SYS_bind,
        (Class::Other, Class::Other) => failed.nr == done.nr,
        _ => false,
    }
}

/// Memory of about that size: large pages are asked for first, and their size is rounded up.
fn is_room_for(wanted: &serde_json::Value, begun: &Begun) -> bool {
    let flags = begun.args[3];
    let Some(length) = wanted["length"].as_u64().filter(|_| begun.nr == c::SYS_mmap) else { return false };
    let enough = if wanted["huge"] == true { length / 2 } else { length };
    flags & c::MAP_ANONYMOUS as u64 != 0 && begun.args[1] >= enough
}

/// A file of this name may be executed or was put in memory: what was refused of it before, of these classes, does not matter any more.
/// That a file may be executed does not mean that it could be.
pub(crate) fn by_name(f: &mut State, name: &[u8], classes: &[Class]) {
    let Some(refused) = f.refused.get_mut(name) else { return };
    refused.retain(|at| match f.tree.failures.get_mut(*at) {
        Some(failure) if classes.contains(&failure.call.class) => {
            failure.resolved = true;
            false
        }
        kept => kept.is_some(),
    });
}

/// A program took the place of the process: what failed in the one before says nothing of this one.
pub(crate) fn executed(f: &mut State, at: usize, program: &[u8]) {
    by_name(f, base(program), &[Class::Ask, Class::Exec, Class::Map]);
    // Tried in other places, or as a script, before. A program of another machine is no script, though execvp has a shell read it.
    for failure in f.tree.failures.iter_mut().filter(|f| f.process == at) {
        let other_machine = failure.errno == c::ENOEXEC && failure.facts["content"]["form"] == "elf";
        failure.resolved |= failure.call.class == Class::Exec && !other_machine;
        failure.before_exec |= !other_machine;
    }
}
