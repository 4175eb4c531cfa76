//! A few thousand inputs for every target, the same in every run: the seeds, variants of them, and noise.

use std::collections::BTreeSet;

use leadline_fuzz::seeds::{mutate, noise, seeds};
use leadline_fuzz::{Random, TARGETS};

/// Runs a target; gives how far its inputs came.
fn run(name: &str, inputs: usize) -> BTreeSet<&'static str> {
    let (_, target) = TARGETS.into_iter().find(|(n, _)| *n == name).unwrap();
    let seeds = seeds(name);
    let mut random = Random(7);
    let mut reached: BTreeSet<_> = seeds.iter().map(|seed| target(seed)).collect();
    for n in 0..inputs {
        let input = match n % 8 {
            0 => {
                let length = random.below(300) as usize;
                noise(&mut random, length)
            }
            _ => {
                let seed = random.below(seeds.len() as u64) as usize;
                mutate(&mut random, &seeds[seed])
            }
        };
        reached.insert(target(&input));
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
    assert_reached("control", 20_000, &["control", "short", "pg_control_version", "blcksz"]);
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
