//! A few thousand inputs for every target, the same in every run: the seeds, variants of them, and noise.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use leadline_fuzz::seeds::{mutate, seeds};
use leadline_fuzz::TARGETS;
use leadline_testdata::{noise, Random};

/// Memory that one input may take at a time: all inputs here are shorter than 150 kB.
const MOST_BYTES: i64 = 128 << 20;
/// No input takes a second; this is for a loop without end.
const ENDLESS: Duration = Duration::from_secs(120);

thread_local! {
    /// Bytes that this thread took and did not give back, and the most there were.
    static TAKEN: Cell<(i64, i64)> = const { Cell::new((0, 0)) };
}

fn took(bytes: i64) {
    let _ = TAKEN.try_with(|taken| {
        let (now, most) = taken.get();
        taken.set((now + bytes, most.max(now + bytes)));
    });
}

struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

// SAFETY: every call goes to the system's allocator as it came; what is added only counts.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        took(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        took(layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        took(-(layout.size() as i64));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(at, layout) }
    }
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        took(size as i64 - layout.size() as i64);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Ends the whole test when no input is done for too long: a thread in an endless loop cannot be ended otherwise.
fn watch(name: &str) -> mpsc::Sender<Vec<u8>> {
    let (next, inputs) = mpsc::channel::<Vec<u8>>();
    let name = name.to_owned();
    std::thread::spawn(move || {
        let mut last = Vec::new();
        loop {
            match inputs.recv_timeout(ENDLESS) {
                Ok(input) => last = input,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    eprintln!("{name}: no end after {} s of {last:?}", ENDLESS.as_secs());
                    std::process::abort();
                }
            }
        }
    });
    next
}

/// Runs a target; gives how far its inputs came.
fn run(name: &str, inputs: usize) -> BTreeSet<&'static str> {
    let (_, target) = TARGETS.into_iter().find(|(n, _)| *n == name).unwrap();
    let watched = watch(name);
    let seeds = seeds(name);
    let mut random = Random(7);
    let mut reached = BTreeSet::new();
    for n in 0..seeds.len() + inputs {
        let input = match (n.checked_sub(seeds.len()), n % 8) {
            (None, _) => seeds[n].clone(),
            (_, 0) => {
                let length = random.below(300) as usize;
                noise(&mut random, length)
            }
            _ => {
                let seed = random.below(seeds.len() as u64) as usize;
                mutate(&mut random, &seeds[seed])
            }
        };
        watched.send(input.clone()).expect("the watch ends last");
        TAKEN.set((0, 0));
        reached.insert(target(&input));
        let (_, most) = TAKEN.get();
        assert!(most <= MOST_BYTES, "{name} takes {most} bytes for {} of input: {input:?}", input.len());
    }
    reached
}

fn assert_reached(name: &str, inputs: usize, wanted: &[&str]) {
    let reached = run(name, inputs);
    let missing: Vec<_> = wanted.iter().filter(|w| !reached.contains(*w)).collect();
    assert!(missing.is_empty(), "{missing:?} not reached, only {reached:?}");
}

#[test]
fn cursor() {
    assert_reached("cursor", 20_000, &["whole", "truncated"]);
}

#[test]
fn page() {
    let kinds = run("page", 6_000);
    // All but bloom, and what none of the seeds means.
    assert!(kinds.len() >= 29, "{} kinds: {kinds:?}", kinds.len());
}

#[test]
fn oracle() {
    assert_reached("oracle", 3_000, &["trans data", "unknown"]);
}

#[test]
fn control() {
    assert_reached("control", 20_000, &["whole", "control", "short", "pg_control_version", "blcksz"]);
}

#[test]
fn wal_segment() {
    let wanted = ["records", "no records", "damaged", "damaged after records", "invalid", "unsupported"];
    assert_reached("wal_segment", 8_000, &wanted);
}

#[test]
fn wal_record() {
    assert_reached("wal_record", 40_000, &["fields", "no fields", "no record"]);
}

#[test]
fn wal_image() {
    assert_reached("wal_image", 20_000, &["pglz", "no pglz", "image", "damaged image", "no image"]);
}

#[test]
fn statement() {
    assert_reached("statement", 40_000, &["empty", "list", "cut", "parameters", "text"]);
}

#[test]
fn informix() {
    assert_reached("informix", 4_000, &["data", "chunk free list", "B-tree leaf", "reserved root", "unknown"]);
}

#[test]
fn value() {
    assert_reached("value", 60_000, &["text", "made", "hex"]);
}

#[test]
fn tuple() {
    let wanted = ["whole", "cut", "pglz", "lz4", "not to unpack", "outside", "outside, packed"];
    assert_reached("tuple", 60_000, &wanted);
}

#[test]
fn rows() {
    let wanted = ["rows", "no rows", "unread", "invalid", "unsupported", "not_found"];
    assert_reached("rows", 4_000, &wanted);
}

#[test]
fn page_values() {
    let wanted = ["table", "btree", "hash", "gist", "gin", "spgist", "brin", "no items"];
    assert_reached("page_values", 600, &[&wanted[..], &["invalid", "unsupported"]].concat());
}

#[test]
fn rows_parquet() {
    assert_reached("rows_parquet", 400, &["rows", "as text", "no rows"]);
}

#[test]
fn pending() {
    let wanted =
        ["old rows", "old index", "nothing old", "unread", "no relation", "invalid", "unsupported", "not_found"];
    assert_reached("pending", 8_000, &wanted);
}

#[test]
fn redo() {
    let rmgrs = ["heap", "heap2", "btree", "hash", "gin", "gist", "sequence", "spgist", "brin", "generic", "storage"];
    let wanted = ["misfit", "older", "missing", "unchanged", "no page"];
    assert_reached("redo", 12_000, &[&rmgrs[..], &wanted].concat());
}

#[test]
fn elf() {
    assert_reached("elf", 20_000, &["held locks", "version", "ELF", "no ELF"]);
}

#[test]
fn relmap() {
    assert_reached("relmap", 10_000, &["map", "file", "magic", "num_mappings", "crc"]);
}

#[test]
fn clog() {
    assert_reached("clog", 5_000, &["many runs", "all runs"]);
}

#[test]
fn packets() {
    assert_reached("packets", 30_000, &["connections", "packets", "ended early", "invalid", "unsupported"]);
}

#[test]
fn conversation() {
    assert_reached("conversation", 20_000, &["postgresql", "mysql", "tls", "unknown"]);
}

#[test]
fn tar() {
    assert_reached("tar", 8_000, &["whole", "unread", "damaged"]);
}

#[test]
fn manifest() {
    assert_reached("manifest", 8_000, &["whole", "unread", "damaged", "no files", "invalid", "unsupported"]);
}

#[test]
fn conditions() {
    assert_reached("conditions", 2_000, &["compared", "undecided", "not compared", "no rows"]);
}
