//! What is known while the command runs.

use crate::calls::Call;
use crate::deaths::OutOfMemory;
use crate::tree::Tree;
use serde_json::Value;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::time::Instant;

/// A call that has begun.
pub(crate) struct Begun {
    pub(crate) nr: i64,
    pub(crate) args: [u64; 6],
    /// Our filter stopped it: no other filter answers it.
    pub(crate) reached: bool,
    /// The program of an exec: if it succeeds, the memory with its name is gone.
    pub(crate) program: Option<Vec<u8>>,
}

/// Failures that a process may speak of soon: files that are not there are so frequent that only these are kept.
pub(crate) struct Recent {
    pub(crate) call: &'static Call,
    pub(crate) errno: i32,
    /// Its path, or its address.
    pub(crate) name: Vec<u8>,
    /// The path as the call gave it.
    pub(crate) given: Vec<u8>,
    /// What else its arguments tell.
    pub(crate) detail: Value,
    pub(crate) ts_ns: u64,
    /// Where it is kept, if it is.
    pub(crate) kept: Option<usize>,
    /// The process has opened other files since: it went on without this one.
    pub(crate) overtaken: bool,
}

/// What is known of a process while it runs.
pub(crate) struct Running {
    /// Its place in the tree; None where there was no room.
    pub(crate) at: Option<usize>,
    /// Stops at each call.
    pub(crate) every: bool,
    pub(crate) recent: VecDeque<Recent>,
    /// Sockets that are being connected: descriptor and address.
    pub(crate) connecting: HashMap<i32, String>,
    /// Lines that are not complete yet, of the error output and of the standard output.
    pub(crate) lines: [Vec<u8>; 2],
    /// Failures that a later success may resolve: places in `tree.failures`.
    pub(crate) open: Vec<usize>,
    /// Seconds of CPU after which the kernel kills it.
    pub(crate) cpu_limit_s: Option<u64>,
    /// The control group whose memory it uses.
    pub(crate) group: Option<PathBuf>,
}

impl Running {
    pub(crate) fn new(at: Option<usize>, every: bool, cpu_limit_s: Option<u64>, group: Option<PathBuf>) -> Running {
        Running {
            at,
            every,
            recent: VecDeque::new(),
            connecting: HashMap::new(),
            lines: Default::default(),
            open: Vec::new(),
            cpu_limit_s,
            group,
        }
    }
}

pub(crate) struct State {
    pub(crate) tree: Tree,
    /// By process id.
    pub(crate) running: HashMap<i32, Running>,
    /// Our filter has stopped a call: it could be set.
    pub(crate) filtered: bool,
    /// Files that were refused, by their last name: places in `tree.failures`. A later success with the name resolves them.
    pub(crate) refused: HashMap<Vec<u8>, Vec<usize>>,
    pub(crate) out_of_memory: OutOfMemory,
    began: Instant,
}

impl State {
    pub(crate) fn new() -> State {
        State {
            tree: Tree::default(),
            running: HashMap::new(),
            filtered: false,
            refused: HashMap::new(),
            out_of_memory: OutOfMemory::new(),
            began: Instant::now(),
        }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
