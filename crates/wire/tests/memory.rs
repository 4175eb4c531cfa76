//! Memory while 180,000 short connections are followed, by an allocator that counts.

#[allow(dead_code)]
mod made;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use leadline_wire::analyser::{Analyser, Options};
use leadline_wire::packet::{Link, Packet};
use made::{pg, tcp, ACK, FIN, SYN};

struct Counting;

static USED: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is done by the system's allocator; the counters are beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let used = USED.fetch_add(layout.size(), Relaxed) + layout.size();
        MOST.fetch_max(used, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        USED.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const CONNECTIONS: u32 = 180_000;
/// Of them at a time; a connection that was closed is kept for five seconds more.
const MS_EACH: i64 = 1;
/// A connection takes about 4 kB while it is followed or kept for a list.
const MOST_EACH: usize = 5 * 1024;

/// Follows the connections, and gives the most bytes that were in use. `each` sees the analyser after each one.
fn most_used(options: Options, each: impl Fn(&mut Analyser)) -> (Analyser, usize) {
    let mut analyser = Analyser::new(options);
    let before = USED.load(Relaxed);
    MOST.store(before, Relaxed);
    let mut ts = 0;
    for number in 0..CONNECTIONS {
        let (client, server) = ((1 + (number / 60_000) as u8, 1000 + (number % 60_000) as u16), (9, 5432));
        let ready = [pg::auth(0), pg::ready(b'I')].concat();
        let (ask, answer) = (pg::startup("app", "shop"), ready);
        for (from_client, seq, ack, flags, data) in [
            (true, 0, 0, SYN, &[][..]),
            (false, 0, 1, SYN | ACK, &[]),
            (true, 1, 1, ACK, &ask),
            (false, 1, 1 + ask.len() as u32, ACK, &answer),
            (true, 1 + ask.len() as u32, 1 + answer.len() as u32, FIN | ACK, &[]),
            (false, 1 + answer.len() as u32, 2 + ask.len() as u32, FIN | ACK, &[]),
        ] {
            let (from, to) = if from_client { (client, server) } else { (server, client) };
            let data = tcp(from, to, seq, ack, flags, data);
            analyser.take(&Packet { ts, wire_len: data.len() as u32, link: Link::Raw, place: 0, data: &data });
            ts += MS_EACH * 1_000_000 / 6;
        }
        each(&mut analyser);
    }
    (analyser, MOST.load(Relaxed) - before)
}

/// One test: the allocator counts for the whole process.
#[test]
fn many_short_connections_take_the_memory_of_those_that_are_kept() {
    let options = |keep_rows, listed| Options { interval_ns: 1_000_000_000, keep_rows, listed, ..Options::default() };
    let followed = 7_000; // at 1,000 a second
                          // Of a summary that lists 20: those that are followed, and 4,096 among which the longest are found.
    let (mut seen, used) = most_used(options(false, Some(20)), |_| {});
    assert!(used < (followed + 20 + 4096) * MOST_EACH, "{used} bytes");
    seen.finish();
    assert_eq!((seen.closed.len(), seen.counts.connections), (20, CONNECTIONS.into()));
    assert_eq!(seen.counts.not_listed, u64::from(CONNECTIONS) - 20);
    drop(seen);
    // Into a capture, which takes the rows away.
    let (_, used) = most_used(options(true, None), |analyser| {
        if analyser.closed.len() >= 1000 {
            analyser.closed.clear();
            analyser.trips.clear();
            analyser.intervals.clear();
        }
    });
    assert!(used < (followed + 2000) * MOST_EACH, "{used} bytes");
}
