//! A client's connection and the one to the server that belongs to it.

use std::os::fd::OwnedFd;

use crate::clock::now_ns;
use crate::delay::pipe::Pipe;
use crate::delay::socket::{self, Read};
use crate::delay::{Plan, Way, PIECE};

/// Bytes that are written at the cost that was measured for a few.
const SMALL: usize = 4096;

/// A socket, and what epoll said of it last: it says each change once.
pub(super) struct End {
    pub(super) fd: OwnedFd,
    pub(super) readable: bool,
    pub(super) writable: bool,
}

impl End {
    pub(super) fn new(fd: OwnedFd) -> End {
        End { fd, readable: false, writable: false }
    }

    /// What epoll says.
    pub(super) fn heard(&mut self, flags: i32) {
        let broken = libc::EPOLLERR | libc::EPOLLHUP;
        self.readable |= flags & (libc::EPOLLIN | libc::EPOLLRDHUP | broken) != 0;
        self.writable |= flags & (libc::EPOLLOUT | broken) != 0;
    }
}

/// Whether a pair goes on.
pub(super) enum Next {
    /// Something is due then.
    At(i64),
    /// Both directions have ended.
    Over,
    /// One of the connections broke: both are to be reset.
    Broken,
}

/// `pipes[0]` leads from `ends[0]`, the client, to `ends[1]`, the server; `pipes[1]` back.
pub(super) struct Pair {
    pub(super) ends: [End; 2],
    pub(super) pipes: [Pipe; 2],
}

impl Pair {
    /// Passes on what is due, and reads what has come.
    pub(super) fn progress(&mut self, plan: &Plan, write_cost_ns: i64, ways: &mut [Way; 2]) -> Next {
        let mut next = i64::MAX;
        for (way, from, to) in [(0, 0, 1), (1, 1, 0)] {
            let parts = ways[1].parts;
            if !self.pass_on(way, to, plan, write_cost_ns, &mut ways[way])
                || !take_in(&mut self.pipes[way], &mut self.ends[from], plan, &mut ways[way])
            {
                return Next::Broken;
            }
            if way == 1 && ways[1].parts > parts {
                self.pipes[0].heard(now_ns());
            }
            let reads = self.ends[from].readable;
            // What cannot be written waits for epoll, not for the clock.
            let due = if self.ends[to].writable { self.pipes[way].next_ns(reads) - write_cost_ns } else { i64::MAX };
            next = next.min(due);
            if reads && self.pipes[way].room(plan, now_ns()) > 0 {
                next = 0; // there is more to read
            }
        }
        if self.pipes.iter().all(|pipe| pipe.end_sent) {
            return Next::Over;
        }
        Next::At(next)
    }

    /// Writes parts that are due; false when the connection is broken.
    fn pass_on(&mut self, way: usize, to: usize, plan: &Plan, write_cost_ns: i64, sums: &mut Way) -> bool {
        let (pipe, end) = (&mut self.pipes[way], &mut self.ends[to]);
        let now = now_ns();
        while let Some(part) = pipe.parts.front_mut() {
            if part.due_ns - write_cost_ns > now || !end.writable {
                break;
            }
            let bytes = pipe.ring.front(part.left);
            let wanted = bytes.len();
            let began = now_ns();
            let Some(n) = socket::write(&end.fd, bytes) else { return false };
            pipe.ring.drop_front(n);
            part.left -= n;
            if n < wanted {
                part.held_back = true;
                end.writable = false;
            }
            if part.left > 0 {
                continue;
            }
            let done = now_ns();
            sums.parts += 1;
            // A small part has arrived before the call returns, which goes on to wake the receiver.
            let there = if part.size <= SMALL { (began + write_cost_ns).min(done) } else { done };
            match part.held_back {
                true => sums.held_back += 1,
                false => sums.added.record(there - part.arrived_ns),
            }
            let size = part.size;
            pipe.parts.pop_front();
            pipe.delivered(size, done, plan);
        }
        if !end.writable {
            // What is due and cannot be written is the receiver's delay.
            pipe.parts.iter_mut().take_while(|part| part.due_ns <= now).for_each(|part| part.held_back = true);
        }
        if pipe.parts.is_empty() && !pipe.end_sent && pipe.end_due_ns.is_some_and(|due| due - write_cost_ns <= now) {
            socket::end(&end.fd);
            pipe.end_sent = true;
        }
        true
    }
}

/// Reads once; false when the connection is broken.
pub(super) fn take_in(pipe: &mut Pipe, end: &mut End, plan: &Plan, sums: &mut Way) -> bool {
    if !end.readable || pipe.end_due_ns.is_some() {
        return true;
    }
    let room = pipe.room(plan, now_ns()).min(PIECE);
    if room == 0 {
        return true;
    }
    let free = pipe.ring.free();
    let most = room.min(free.len());
    match socket::read(&end.fd, &mut free[..most]) {
        Read::Bytes(n, at) => {
            pipe.arrived(n, at, plan);
            sums.bytes += n as u64;
            sums.most_buffered = sums.most_buffered.max(pipe.ring.len());
        }
        Read::End => {
            pipe.ended(now_ns(), plan);
            end.readable = false;
        }
        Read::Later => end.readable = false,
        Read::Broken => return false,
    }
    true
}
