//! The tree: a node for each function below each path of callers.

use crate::line::{parse, Line};
use crate::Format;
use std::collections::HashMap;

/// Different paths that are kept; calls below others are counted in `left_out`.
const MOST_NODES: usize = 1_000_000;
const NONE: u32 = u32::MAX;

/// A function, called by the functions above it.
#[derive(Debug, Clone)]
pub struct Node {
    /// How often it was called there.
    pub count: u64,
    /// Time from entry to return, of the calls that have one.
    pub total_ns: u64,
    /// At least one call has a time.
    pub timed: bool,
    name: u32,
    /// First and last callee, and the next callee of the same caller: in the order in which they were first seen.
    first: u32,
    last: u32,
    next: u32,
}

struct Frame {
    node: u32,
    depth: usize,
    at_ns: Option<u64>,
}

/// A trace, folded.
pub struct Tree {
    /// What the lines were read as.
    pub format: Format,
    /// Of the input.
    pub bytes: u64,
    /// Lines of the input.
    pub lines: u64,
    /// Lines that are none of the format.
    pub unknown: u64,
    /// The first of them.
    pub first_unknown: Option<String>,
    /// Calls.
    pub calls: u64,
    /// Returns of calls that began before the trace.
    pub returns_alone: u64,
    /// Calls for which there was no room.
    pub left_out: u64,
    nodes: Vec<Node>,
    places: HashMap<(u32, u32), u32>,
    names: HashMap<Box<[u8]>, u32>,
    texts: Vec<String>,
    stacks: HashMap<u64, Vec<Frame>>,
}

impl Tree {
    pub(crate) fn new(format: Format) -> Tree {
        let root = Node { count: 0, total_ns: 0, timed: false, name: NONE, first: NONE, last: NONE, next: NONE };
        Tree {
            format,
            bytes: 0,
            lines: 0,
            unknown: 0,
            first_unknown: None,
            calls: 0,
            returns_alone: 0,
            left_out: 0,
            nodes: vec![root],
            places: HashMap::new(),
            names: HashMap::new(),
            texts: Vec::new(),
            stacks: HashMap::new(),
        }
    }

    /// Threads, or CPUs of ftrace, that have calls.
    pub fn threads(&self) -> usize {
        self.stacks.len()
    }

    /// The name of the function.
    pub fn name(&self, node: &Node) -> &str {
        self.texts.get(node.name as usize).map_or("", String::as_str)
    }

    /// Nodes with their depth, callers first, down to a depth.
    pub fn rows(&self, depth: usize) -> impl Iterator<Item = (usize, &Node)> {
        let mut open = vec![self.nodes[0].first];
        std::iter::from_fn(move || loop {
            let at = *open.last()?;
            let Some(node) = self.nodes.get(at as usize) else {
                open.pop();
                continue;
            };
            let level = open.len() - 1;
            if let Some(last) = open.last_mut() {
                *last = node.next;
            }
            if level + 1 < depth {
                open.push(node.first);
            }
            return Some((level, node));
        })
    }

    pub(crate) fn add(&mut self, line: &[u8]) {
        self.lines += 1;
        match parse(self.format, line) {
            Line::Enter { thread, depth, name, at_ns } => self.enter(thread, depth, name, at_ns),
            Line::Whole { thread, depth, name, took_ns } => {
                self.enter(thread, depth, name, None);
                self.leave(thread, None, None, took_ns, None);
            }
            Line::Leave { thread, depth, name, took_ns, at_ns } => self.leave(thread, depth, name, took_ns, at_ns),
            Line::Other => {}
            Line::Unknown => {
                self.unknown += 1;
                let start = &line[..line.len().min(200)];
                self.first_unknown.get_or_insert_with(|| String::from_utf8_lossy(start).into_owned());
            }
        }
    }

    fn enter(&mut self, thread: u64, depth: Option<usize>, name: &[u8], at_ns: Option<u64>) {
        self.calls += 1;
        let stack = self.stacks.entry(thread).or_default();
        if let Some(depth) = depth {
            // Calls whose return is not in the trace.
            while stack.last().is_some_and(|frame| frame.depth >= depth) {
                stack.pop();
            }
        }
        let (above, level) = stack.last().map_or((0, 0), |frame| (frame.node, frame.depth + 1));
        let node = self.node(above, name);
        if let Some(node) = self.nodes.get_mut(node as usize) {
            node.count += 1;
        } else {
            self.left_out += 1;
        }
        if let Some(stack) = self.stacks.get_mut(&thread) {
            stack.push(Frame { node, depth: depth.unwrap_or(level), at_ns });
        }
    }

    fn leave(
        &mut self,
        thread: u64,
        depth: Option<usize>,
        name: Option<&[u8]>,
        took_ns: Option<u64>,
        at_ns: Option<u64>,
    ) {
        let stack = self.stacks.entry(thread).or_default();
        let ends = match (depth, name) {
            (Some(depth), _) => {
                while stack.last().is_some_and(|frame| frame.depth > depth) {
                    stack.pop();
                }
                stack.last().is_some_and(|frame| frame.depth == depth)
            }
            (None, Some(name)) => {
                let wanted = self.names.get(name).copied();
                let named = |frame: &Frame| self.nodes.get(frame.node as usize).map(|node| node.name) == wanted;
                let at = stack.iter().rposition(named).filter(|_| wanted.is_some());
                stack.truncate(at.map_or(stack.len(), |at| at + 1));
                at.is_some()
            }
            (None, None) => true,
        };
        let Some(frame) = stack.pop_if(|_| ends) else {
            self.returns_alone += 1;
            return;
        };
        let took = took_ns.or_else(|| Some(at_ns?.saturating_sub(frame.at_ns?)));
        if let (Some(node), Some(took)) = (self.nodes.get_mut(frame.node as usize), took) {
            node.total_ns = node.total_ns.saturating_add(took);
            node.timed = true;
        }
    }

    /// The node of a function below another; NONE where there is no room.
    fn node(&mut self, above: u32, name: &[u8]) -> u32 {
        let name = match self.names.get(name) {
            Some(known) => *known,
            None if self.texts.len() < MOST_NODES => {
                self.texts.push(String::from_utf8_lossy(name).into_owned());
                self.names.insert(name.into(), self.texts.len() as u32 - 1);
                self.texts.len() as u32 - 1
            }
            None => return NONE,
        };
        if let Some(known) = self.places.get(&(above, name)) {
            return *known;
        }
        if above == NONE || self.nodes.len() >= MOST_NODES {
            return NONE;
        }
        let new = self.nodes.len() as u32;
        self.nodes.push(Node { count: 0, total_ns: 0, timed: false, name, first: NONE, last: NONE, next: NONE });
        self.places.insert((above, name), new);
        let before = self.nodes.get(above as usize).map_or(NONE, |node| node.last);
        if let Some(before) = self.nodes.get_mut(before as usize) {
            before.next = new;
        }
        if let Some(above) = self.nodes.get_mut(above as usize) {
            above.first = if above.first == NONE { new } else { above.first };
            above.last = new;
        }
        new
    }
}
