//! What was seen: processes and failures, with bounds, and as JSON.

use crate::calls::Call;
use crate::memory::text;
use serde_json::{json, Value};
use std::collections::HashMap;

/// More are counted, not kept.
const MOST_PROCESSES: usize = 100_000;
const MOST_FAILURES: usize = 20_000;

#[derive(Debug)]
pub(crate) struct Signal {
    pub(crate) number: i32,
    pub(crate) code: i32,
    pub(crate) sender: Option<i32>,
}

/// One process. Its place in `Tree::processes` is its name: process ids are used again.
#[derive(Debug, Default)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) parent: Option<usize>,
    pub(crate) program: Vec<u8>,
    pub(crate) execs: u32,
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: Option<u64>,
    /// As waitpid gives it.
    pub(crate) status: Option<i32>,
    pub(crate) signal: Option<Signal>,
    /// The call for which a filter ended it: its name, or number.
    pub(crate) forbidden: Option<String>,
    /// A process of the command sent it the signal that ends processes.
    pub(crate) killed_by_own: bool,
    /// When its present program began.
    pub(crate) exec_ns: Option<u64>,
    /// The end of what this program wrote to its error output, but for /dev/null; the first line of it that has the word error.
    pub(crate) said: Vec<u8>,
    pub(crate) first_error: Vec<u8>,
    pub(crate) said_ns: Option<u64>,
    /// Where the error output went then: a path, or `pipe:[123]`.
    pub(crate) said_to: Vec<u8>,
    /// The end of what it wrote to its standard output.
    pub(crate) printed: Vec<u8>,
    pub(crate) printed_ns: Option<u64>,
    /// Time on the CPU, with children that it waited for; the limit on that of its own.
    pub(crate) cpu_s: f64,
    pub(crate) cpu_limit_s: Option<u64>,
    /// Why the kernel killed it: the stack was full, or memory.
    pub(crate) stack: Option<Value>,
    pub(crate) out_of_memory: Option<Value>,
    /// Questions to name servers: server, name, the answer's code.
    pub(crate) lookups: Vec<Lookup>,
    /// Libraries that were looked for and not found yet: name, and the folders.
    pub(crate) libraries: Vec<(Vec<u8>, Vec<Vec<u8>>)>,
}

#[derive(Debug, Default)]
pub(crate) struct Lookup {
    pub(crate) fd: i32,
    pub(crate) server: String,
    pub(crate) name: String,
    pub(crate) code: Option<u8>,
}

#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) process: usize,
    pub(crate) call: &'static Call,
    pub(crate) errno: i32,
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) address: Option<String>,
    pub(crate) ts_ns: u64,
    pub(crate) count: u64,
    /// The process then wrote of it: how clearly (`speech`), when, and the line.
    pub(crate) said: u8,
    pub(crate) said_ns: Option<u64>,
    pub(crate) line: Vec<u8>,
    /// Another program has taken the place of the one that failed.
    pub(crate) before_exec: bool,
    /// Another attempt at the same succeeded.
    pub(crate) resolved: bool,
    /// A seccomp filter answered, not the kernel.
    pub(crate) by_filter: bool,
    pub(crate) facts: Value,
    /// What its arguments tell of its purpose.
    pub(crate) detail: Value,
}

#[derive(Default)]
pub(crate) struct Tree {
    pub(crate) processes: Vec<Process>,
    pub(crate) failures: Vec<Failure>,
    same: HashMap<(usize, i64, i32, Vec<u8>), usize>,
    pub(crate) processes_left_out: u64,
    pub(crate) failures_left_out: u64,
    pub(crate) stops: u64,
    pub(crate) failed_calls: u64,
    /// Where the outputs of the command go.
    pub(crate) outputs: Vec<Vec<u8>>,
}

impl Tree {
    /// Where the process is kept; None where there is no room.
    pub(crate) fn add_process(&mut self, process: Process) -> Option<usize> {
        if self.processes.len() >= MOST_PROCESSES {
            self.processes_left_out += 1;
            return None;
        }
        self.processes.push(process);
        Some(self.processes.len() - 1)
    }

    /// The failure that says the same of this process, if there is one: it happened once more.
    pub(crate) fn again(&mut self, process: usize, nr: i64, errno: i32, name: &[u8], ts_ns: u64) -> Option<usize> {
        let at = *self.same.get(&(process, nr, errno, name.to_vec()))?;
        let failure = self.failures.get_mut(at)?;
        failure.count += 1;
        failure.ts_ns = ts_ns;
        failure.resolved = false;
        failure.before_exec = false;
        Some(at)
    }

    pub(crate) fn add_failure(&mut self, name: &[u8], failure: Failure) -> Option<usize> {
        if self.failures.len() >= MOST_FAILURES {
            self.failures_left_out += 1;
            return None;
        }
        self.same.insert((failure.process, failure.call.nr, failure.errno, name.to_vec()), self.failures.len());
        self.failures.push(failure);
        Some(self.failures.len() - 1)
    }

    pub(crate) fn as_json(&self, filtered: bool, left_running: usize) -> Value {
        json!({
            "filtered": filtered,
            "left_running": left_running,
            "outputs": self.outputs.iter().map(|name| text(name)).collect::<Vec<_>>(),
            "stops": self.stops,
            "failed_calls": self.failed_calls,
            "processes_left_out": self.processes_left_out,
            "failures_left_out": self.failures_left_out,
            "processes": self.processes.iter().map(process_json).collect::<Vec<_>>(),
            "failures": self.failures.iter().map(failure_json).collect::<Vec<_>>(),
        })
    }
}

fn process_json(p: &Process) -> Value {
    let code = p.status.filter(|status| libc::WIFEXITED(*status)).map(|status| libc::WEXITSTATUS(status));
    let signal = p.status.filter(|status| libc::WIFSIGNALED(*status)).map(|status| libc::WTERMSIG(status));
    json!({
        "pid": p.pid, "parent": p.parent, "program": text(&p.program), "execs": p.execs,
        "started_ns": p.started_ns, "ended_ns": p.ended_ns, "exit_code": code, "signal": signal,
        "core": p.status.is_some_and(|status| libc::WIFSIGNALED(status) && libc::WCOREDUMP(status)),
        "sender": p.signal.as_ref().filter(|s| Some(s.number) == signal).and_then(|s| s.sender),
        "signal_code": p.signal.as_ref().filter(|s| Some(s.number) == signal).map(|s| s.code),
        "forbidden": p.forbidden, "killed_by_own": p.killed_by_own,
        "exec_ns": p.exec_ns, "said": text(&p.said), "first_error": text(&p.first_error), "said_ns": p.said_ns,
        "said_to": text(&p.said_to), "printed": text(&p.printed), "printed_ns": p.printed_ns, "cpu_s": p.cpu_s, "cpu_limit_s": p.cpu_limit_s,
        "stack": p.stack, "out_of_memory": p.out_of_memory,
        "lookups": p.lookups.iter().map(|l| json!({"server": l.server, "name": l.name, "code": l.code})).collect::<Vec<_>>(),
        "libraries": p.libraries.iter().map(|(name, folders)| json!({"name": text(name),
            "folders": folders.iter().map(|folder| text(folder)).collect::<Vec<_>>()})).collect::<Vec<_>>(),
    })
}

fn failure_json(f: &Failure) -> Value {
    json!({
        "process": f.process, "call": f.call.name, "errno": f.errno, "path": f.path.as_deref().map(text),
        "address": f.address, "ts_ns": f.ts_ns, "count": f.count, "said": f.said, "said_ns": f.said_ns,
        "line": text(&f.line), "before_exec": f.before_exec, "resolved": f.resolved, "by_filter": f.by_filter,
        "facts": f.facts, "detail": f.detail,
    })
}
