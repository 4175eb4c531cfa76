//! The simulator against closed forms, and what must hold of every run.

use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::*;
use crate::drive::Op;
use crate::raid::Raid;

const HDD: &str =
    "[drive]\nkind = 'hdd'\ncapacity_gb = 300\nrpm = 15000\nseek_ms = [0.2, 3.4, 6.6]\ntransfer_mb_s = 160\n";
const SSD: &str =
    "[drive]\nkind = 'ssd'\ncapacity_gb = 100\nread_us = 100\nwrite_us = 50\nparallel = 4\ntransfer_mb_s = 1000000\n";
const LIMITED: &str = "[drive]\nkind = 'limited'\ncapacity_gb = 10\nrequests_per_s = 100\n";

fn layout_of(drive: &str, raid: u32, drives: usize, more: &str) -> Layout {
    let group = format!(
        "[[group]]\nname = 'g'\nraid = {raid}\ndrives = {drives}\nluns = ['l']\n{more}\n[place]\ndata = ['l']\n"
    );
    Layout::parse(&format!("name = 't'\n{drive}{group}"), "t.toml").unwrap()
}

fn load_of(about: &str, steps: &[&str]) -> Load {
    let steps: String = steps.iter().map(|step| format!("[[load.step]]\nobject = 'data'\n{step}\n")).collect();
    Loads::parse(&format!("[[load]]\nname = 'l'\n{about}\n{steps}"), "l.toml").unwrap().load.remove(0)
}

fn run(layout: &Layout, load: &Load, seconds: f64) -> Value {
    simulate(layout, load, 1, seconds, 1.0, &AtomicBool::new(false)).unwrap()
}

fn number(of: &Value, path: &str) -> f64 {
    of.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("no {path} in {of}"))
}

fn near(found: f64, wanted: f64, share: f64) {
    assert!((found / wanted - 1.0).abs() < share, "{found}, and {wanted} is right");
}

const READ: &str = "op = 'read'";
const WRITE: &str = "op = 'write'";

#[test]
fn a_disk_alone_takes_a_seek_half_a_turn_and_the_transfer() {
    let out = run(&layout_of(HDD, 0, 1, ""), &load_of("threads = 1", &[READ]), 300.0);
    let ms = 3.4 + 2.0 + 8.192 / 160.0;
    near(number(&out, "/requests_per_s"), 1000.0 / ms, 0.01);
    near(number(&out, "/latency_ms/read/mean"), ms, 0.01);
    near(number(&out, "/drives/0/utilisation"), 1.0, 1e-6);
}

#[test]
fn a_disk_that_chooses_among_many_is_faster_than_one_that_takes_them_in_order() {
    let per_s = |more: &str| {
        number(
            &run(&layout_of(&format!("{HDD}{more}"), 0, 1, ""), &load_of("threads = 32", &[READ]), 60.0),
            "/requests_per_s",
        )
    };
    let (fifo, elevator) =
        (per_s("order = 'fifo'\nqueue_depth = 32\n"), per_s("order = 'elevator'\nqueue_depth = 32\n"));
    let shortest = per_s("queue_depth = 32\n");
    near(fifo, 1000.0 / (3.4 + 2.0 + 8.192 / 160.0), 0.02);
    assert!(1.2 * fifo < elevator && 1.1 * elevator < shortest, "{fifo} {elevator} {shortest}");
    // 15K disks reach 300 to 450 requests a second with 32 in the queue.
    assert!((300.0..500.0).contains(&shortest), "{shortest}");
}

#[test]
fn sequential_reads_come_at_the_speed_of_the_platters() {
    let ahead = layout_of(&format!("{HDD}read_ahead_kb = 512\n"), 0, 1, "");
    let load = load_of("threads = 1", &["op = 'read'\npattern = 'sequential'\nkb = 64"]);
    near(number(&run(&ahead, &load, 30.0), "/mb_per_s"), 160.0, 0.15);
    // Without it the sector has gone by each time: a turn for each request.
    let without = number(&run(&layout_of(HDD, 0, 1, ""), &load, 30.0), "/requests_per_s");
    assert!(without <= 251.0 * 4.0, "{without}");
}

#[test]
fn sequential_commits_without_a_cache_take_a_turn_each() {
    let out = run(&layout_of(HDD, 0, 1, ""), &load_of("threads = 1\nthink_ms = 0.5", &["op = 'commit'"]), 60.0);
    // 15,000 turns a minute: 250 commits a second of one thread.
    near(number(&out, "/commits_per_s"), 250.0, 0.03);
    let many = run(&layout_of(HDD, 0, 1, ""), &load_of("threads = 20\nthink_ms = 0.5", &["op = 'commit'"]), 60.0);
    assert!(number(&many, "/commits_per_s") > 1000.0, "those that come meanwhile are written together: {many}");
}

#[test]
fn waits_of_random_arrivals_at_a_steady_server_are_those_of_m_d_1() {
    let drive = SSD.replace("parallel = 4", "parallel = 1");
    for load in [0.3, 0.6, 0.9] {
        let service = 0.1e-3 + 8192.0 / 1e12;
        let out =
            run(&layout_of(&drive, 0, 1, ""), &load_of(&format!("rate_per_s = {}", load / service), &[READ]), 400.0);
        let wait = load * service / (2.0 * (1.0 - load));
        near(number(&out, "/latency_ms/read/mean") / 1e3 - service, wait, 0.05);
        near(number(&out, "/drives/0/utilisation"), load, 0.01);
        near(number(&out, "/drives/0/queue"), load / service * (service + wait), 0.05);
    }
}

#[test]
fn a_limit_lets_its_number_through() {
    for burst in ["", "burst_ms = 100\n", "burst_ms = 5\n", "slice_ms = 100\n", "slice_ms = 25\n"] {
        let out = run(&layout_of(&format!("{LIMITED}{burst}"), 0, 1, ""), &load_of("threads = 50", &[READ]), 100.0);
        near(number(&out, "/requests_per_s"), 100.0, 0.01);
        near(number(&out, "/drives/0/utilisation"), 1.0, 0.01);
    }
    // A slice of 100 ms: ten at once, then 100 ms for the next.
    let sliced = run(
        &layout_of(&format!("{LIMITED}slice_ms = 100\nlatency_ms = 1\n"), 0, 1, ""),
        &load_of("threads = 1", &[READ]),
        100.0,
    );
    near(number(&sliced, "/requests_per_s"), 100.0, 0.02);
    near(number(&sliced, "/latency_ms/read/p50"), 1.0, 0.01);
    near(number(&sliced, "/latency_ms/read/p99"), 91.0, 0.02);
    let apart = LIMITED.replace("requests_per_s = 100", "reads_per_s = 100\nwrites_per_s = 30");
    let out = run(&layout_of(&apart, 0, 1, ""), &load_of("threads = 50", &["op = 'read'\ncount = 10", WRITE]), 200.0);
    near(number(&out, "/reads_per_s"), 100.0, 0.01);
    near(number(&out, "/writes_per_s"), 10.0, 0.02);
}

#[test]
fn small_writes_cost_what_their_level_costs() {
    let per_s = |raid, drives| {
        number(
            &run(&layout_of(LIMITED, raid, drives, ""), &load_of("threads = 200", &[WRITE]), 60.0),
            "/requests_per_s",
        )
    };
    for (raid, drives, each) in
        [(0, 12, 1.0), (1, 2, 2.0), (10, 12, 2.0), (5, 12, 4.0), (6, 12, 6.0), (6, 6, 6.0), (5, 3, 3.0)]
    {
        near(per_s(raid, drives), 100.0 * drives as f64 / each, 0.03);
    }
}

#[test]
fn reads_of_mirrors_use_all_copies() {
    for (raid, drives) in [(1, 2), (1, 3), (10, 12), (0, 4), (5, 6), (6, 12)] {
        let out = run(&layout_of(LIMITED, raid, drives, ""), &load_of("threads = 200", &[READ]), 60.0);
        near(number(&out, "/requests_per_s"), 100.0 * drives as f64, 0.04);
    }
    // One thread has one copy, where the thread decides.
    let one = layout_of(LIMITED, 1, 2, "mirror_reads = 'thread'");
    near(number(&run(&one, &load_of("threads = 1", &[READ]), 60.0), "/requests_per_s"), 100.0, 0.01);
    near(number(&run(&one, &load_of("threads = 2", &[READ]), 60.0), "/requests_per_s"), 200.0, 0.01);
}

#[test]
fn a_mix_costs_the_harmonic_mean() {
    // 12 drives, 30 % writes: N * d / (r + w * P).
    for (raid, penalty) in [(10, 2.0), (6, 6.0)] {
        let load = load_of("threads = 400", &["op = 'read'\ncount = 7", "op = 'write'\ncount = 3"]);
        let out = run(&layout_of(LIMITED, raid, 12, ""), &load, 60.0);
        near(number(&out, "/requests_per_s"), 1200.0 / (0.7 + 0.3 * penalty), 0.03);
    }
}

fn raid_of(level: u32, drives: usize, more: &str) -> Raid {
    Raid::new(&layout_of(LIMITED, level, drives, more).groups[0], 0)
}

#[test]
fn a_parity_write_takes_the_cheaper_way() {
    let kb = 1024;
    // Two of four data chunks: the two others and no parity, against two and one.
    let parts = raid_of(5, 5, "").write(0, 128 * kb);
    assert_eq!((parts.len(), parts[0].reads.len(), parts[0].writes.len()), (1, 2, 3));
    // All of a stripe reads nothing.
    let parts = raid_of(5, 5, "").write(0, 256 * kb);
    assert_eq!((parts[0].reads.len(), parts[0].writes.len()), (0, 5));
    // The end of one stripe and the beginning of the next.
    let parts = raid_of(5, 5, "").write(252 * kb, 8 * kb);
    assert_eq!(parts.iter().map(|part| (part.reads.len(), part.writes.len())).collect::<Vec<_>>(), [(2, 2), (2, 2)]);
    assert_eq!(raid_of(6, 12, "partial_writes = 'reconstruct'").write(0, 8 * kb)[0].reads.len(), 9);
    let whole = raid_of(6, 12, "partial_writes = 'whole-stripe'").write(0, 8 * kb);
    assert_eq!((whole[0].reads.len(), whole[0].reads[3].bytes, whole[0].writes.len()), (12, 64 * kb, 3));
    let mut held = raid_of(6, 12, "stripe_cache = 2");
    let reads = |raid: &mut Raid, row: u64| raid.write(row * 640 * kb, 8 * kb)[0].reads.len();
    let found = [0, 0, 1, 2, 0, 2].map(|row| reads(&mut held, row));
    assert_eq!(found, [3, 0, 3, 3, 3, 0]);
}

#[test]
fn every_byte_of_a_group_lies_at_one_place() {
    for (level, drives) in [(0, 3), (10, 6), (5, 4), (6, 5)] {
        let mut raid = raid_of(level, drives, "stripe_kb = 4");
        let mut seen = std::collections::HashSet::new();
        for chunk in 0..120u64 {
            let part = raid.read(chunk * 4096, 4096, 0, &|_| 0);
            let [Op { drive, at, bytes: 4096, write: false }] = part.reads[..] else { panic!("{part:?}") };
            assert!(
                drive < drives && seen.insert((if level == 10 { drive / 2 } else { drive }, at)),
                "{level} {chunk}"
            );
            let writes = raid.write(chunk * 4096, 4096);
            assert!(writes[0].writes.iter().any(|op| (op.drive, op.at) == (drive, at)));
            let on: std::collections::HashSet<_> = writes[0].writes.iter().map(|op| op.drive).collect();
            assert_eq!(on.len(), writes[0].writes.len(), "no drive twice");
        }
    }
}

#[test]
fn a_page_lies_in_one_chunk() {
    // Three objects share a LUN that three does not divide.
    let group =
        "[[group]]\nname = 'g'\nraid = 10\ndrives = 4\nluns = ['l']\n[place]\na = ['l']\ndata = ['l']\nz = ['l']\n";
    let layout = Layout::parse(&format!("name = 't'\n{LIMITED}{group}"), "t").unwrap();
    let out = run(&layout, &load_of("threads = 40", &[READ]), 20.0);
    let of_drives: f64 = (0..4).map(|n| number(&out, &format!("/drives/{n}/reads_per_s"))).sum();
    near(of_drives, number(&out, "/reads_per_s"), 1e-3);
}

#[test]
fn a_cache_takes_writes_until_it_is_full() {
    let cached = |mb: f64| layout_of(HDD, 10, 4, &format!("cache = {{ size_mb = {mb}, destage = 32 }}"));
    let slow = load_of("threads = 1\nthink_ms = 20", &[WRITE]);
    let out = run(&cached(64.0), &slow, 30.0);
    near(number(&out, "/latency_ms/write/p99"), 0.1, 0.01);
    // More than the drives carry: as fast as these in the end, though sorted and together.
    let fast = load_of("threads = 64", &[WRITE]);
    let (with, without) = (run(&cached(64.0), &fast, 200.0), run(&layout_of(HDD, 10, 4, ""), &fast, 200.0));
    let ratio = number(&with, "/requests_per_s") / number(&without, "/requests_per_s");
    assert!((1.0..4.0).contains(&ratio), "{ratio}");
}

#[test]
fn whatever_is_asked_comes_back_and_no_drive_is_busy_beyond_all_of_its_time() {
    let orders =
        ["order = 'fifo'\n", "order = 'elevator'\nqueue_depth = 8\n", "queue_depth = 8\nread_ahead_kb = 256\n"];
    let disks = orders.map(|order| format!("{HDD}{order}"));
    let drives = disks.iter().map(String::as_str).chain([SSD, LIMITED]);
    let loads = [
        load_of("threads = 9", &[READ, "op = 'write'\nbackground = true\ncount = 2.5", "op = 'commit'\nkb = 3"]),
        load_of(
            "threads = 3\nthink_ms = 1",
            &["op = 'read'\nkb = 200\npattern = 'sequential'", "op = 'write'\nkb = 500"],
        ),
        load_of("rate_per_s = 40", &["op = 'write'\nkb = 4", "op = 'read'\nkb = 1"]),
    ];
    for drive in drives {
        for (raid, count) in [(0, 1), (1, 2), (10, 4), (5, 5), (6, 6)] {
            for more in ["", "cache = { size_mb = 1 }", "partial_writes = 'reconstruct'\nstripe_cache = 5"] {
                let layout = layout_of(drive, raid, count, more);
                for load in &loads {
                    // A fault of the laws is an error of `simulate`.
                    let out = run(&layout, load, 0.5);
                    assert_eq!(out, run(&layout, load, 0.5), "the same seed");
                    for n in 0..count {
                        let at = number(&out, &format!("/drives/{n}/utilisation"));
                        assert!((0.0..=1.0).contains(&at), "{at}");
                    }
                }
            }
        }
    }
}

fn traced(rows: &[(u64, u64, i64)], per_s: f64, how: Loop) -> Value {
    let drive = LIMITED.replace("100", &per_s.to_string());
    let row = |(n, (issued, ended, thread)): (usize, &(u64, u64, i64))| TraceRow {
        issued: issued * 1_000_000,
        ended: ended * 1_000_000,
        device: "sda".into(),
        at: n as u64 * 8192,
        bytes: 8192,
        write: false,
        thread: *thread,
    };
    let rows: Vec<TraceRow> = rows.iter().enumerate().map(row).collect();
    let layout = layout_of(&format!("{drive}latency_ms = 4\n"), 0, 1, "");
    replay(&layout, &rows, how, &AtomicBool::new(false)).unwrap()
}

#[test]
fn a_trace_comes_again_at_its_times_or_by_its_threads() {
    // Two threads; each waits for its request and 1 ms more. The device took 2 ms, the simulated one takes 4.
    let rows: Vec<(u64, u64, i64)> = (0..100).flat_map(|n| [(3 * n, 3 * n + 2, 1), (3 * n, 3 * n + 2, 2)]).collect();
    let open = traced(&rows, 1e6, Loop::Open);
    assert_eq!(number(&open, "/requests"), 200.0);
    near(number(&open, "/seconds"), 0.297 + 0.004, 0.001);
    let closed = traced(&rows, 1e6, Loop::Closed);
    assert_eq!(number(&closed, "/requests"), 200.0);
    near(number(&closed, "/seconds"), 0.1 * 5.0, 0.01);
    // Slower than they came: an open loop piles up.
    near(number(&traced(&rows, 100.0, Loop::Open), "/seconds"), 2.0, 0.01);
}

#[test]
fn a_run_that_is_stopped_ends_where_it_is() {
    let layout = layout_of(HDD, 10, 4, "");
    let out = simulate(&layout, &load_of("threads = 30", &[READ, WRITE]), 1, 1e6, 0.0, &AtomicBool::new(true)).unwrap();
    assert!(number(&out, "/seconds") < 1000.0);
}

#[test]
fn a_file_that_says_nonsense_is_refused_with_its_line() {
    let refused = |text: &str, says: &str| {
        let e = Layout::parse(text, "x.toml").unwrap_err();
        assert!(e.to_string().contains(says), "{e}");
    };
    refused("name = 'x'\ngroup = []\n", "1 to 1000 groups");
    refused("name = 'x'\ndrve = 1\n", "x.toml:2");
    let group = |raid: u32, drives: u32| {
        format!("name = 'x'\n{HDD}[[group]]\nname = 'g'\nraid = {raid}\ndrives = {drives}\nluns = ['a', 'b']\n")
    };
    refused(&group(10, 3), "even number");
    refused(&group(6, 3), "four drives");
    refused(&group(7, 3), "raid is 0, 1, 5, 6 or 10");
    refused(&group(1, 2).replace("15000", "0"), "rpm is 0");
    refused(&group(1, 2).replace("3.4", "9.9"), "no disk has the seek times");
    refused(&group(1, 2).replace("300", "nan"), "capacity_gb is NaN");
    refused(&format!("{}[place]\nwal = ['c']\n", group(1, 2)), "wal lies on LUN c");
    refused(&group(1, 2).replace("'b'", "'a'"), "two LUNs are called a");
    let small = Layout::parse(&format!("{}[place]\nwal = ['a']\n[size_gb]\nwal = 200\n", group(1, 2)), "x").unwrap();
    assert!(Array::new(&small).unwrap_err().to_string().contains("too small for wal"));
    let load = |about: &str| {
        Loads::parse(&format!("[[load]]\nname = 'l'\n{about}\n[[load.step]]\nobject = 'o'\nop = 'read'"), "l")
            .map(|_| ())
            .unwrap_err()
    };
    assert!(load("").to_string().contains("threads"));
    assert!(load("threads = 1\nrate_per_s = 3").to_string().contains("or else rate_per_s"));
    let known = load_of("threads = 1", &[READ]);
    let other = Load { steps: vec![crate::layout::Step { object: "wal".into(), ..known.steps[0].clone() }], ..known };
    let e = simulate(&layout_of(LIMITED, 0, 1, ""), &other, 1, 1.0, 0.0, &AtomicBool::new(false)).unwrap_err();
    assert!(e.to_string().contains("uses wal, which layout t does not place"), "{e}");
    let flood = load_of("rate_per_s = 1000000", &[READ]);
    let e = simulate(&layout_of(LIMITED, 0, 1, ""), &flood, 1, 10.0, 0.0, &AtomicBool::new(false)).unwrap_err();
    assert!(e.to_string().contains("does not carry"), "{e}");
}
