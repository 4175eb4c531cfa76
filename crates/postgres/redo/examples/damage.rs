//! Damaged copies of the records of a log on damaged copies of their pages: `damage LOG TIMES`. Redo may refuse them, never panic.
//!
//! Prints what became of them for each resource manager: changed, not fitting, and others.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use leadline_redo::mask::mask;
use leadline_redo::{apply, targets, Applied, Context, Part};
use leadline_testdata::Random;
use leadline_wal::rmgr::rmgr_name;
use leadline_wal::{Decoder, Lsn, Reader, Wal};

fn main() -> leadline_wal::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, times] = &arguments[..] else {
        eprintln!("usage: damage LOG TIMES");
        std::process::exit(2);
    };
    let times: u32 = times.parse().unwrap_or(1);
    let log = Arc::new(Wal::open(Path::new(path), None, None, None)?);
    let context = Context { major: log.major, block_size: 8192, hint_bits_are_logged: true };
    let mut reader = Reader::new(log.clone(), log.range(None, None)?);
    let (mut pages, mut counts, mut random) = (HashMap::new(), BTreeMap::<u8, [u64; 3]>::new(), Random(1));
    let (mut decoder, mut copy) = (Decoder::default(), Vec::new());
    while let Some(record) = reader.next_record()? {
        let mut all = Vec::new();
        targets(&context, &record, |target| all.push(target));
        for target in all {
            let page = pages.entry(target.page).or_insert_with(|| vec![0; 8192]);
            let id = if let Part::Block(id) = target.part { Some(id) } else { None };
            for _ in 0..times {
                copy.clear();
                record.copy_for(id, &mut copy);
                let mut other = page.clone();
                // Headers of the record are right as a rule, or it is not one any more.
                let main = copy.len() - record.main_data().len().min(copy.len());
                match random.below(4) {
                    0 => damage(&mut random, &mut other, 0),
                    1 => damage(&mut random, &mut copy, 24),
                    2 => damage(&mut random, &mut copy, main),
                    _ => {
                        let from = main.saturating_sub(60).max(24);
                        damage(&mut random, &mut copy, from);
                        damage(&mut random, &mut other, 0);
                    }
                }
                // Its end is behind the page's LSN: the record is not taken for an old one.
                let end = Lsn(record.end.0 + 1);
                let Some(damaged) = decoder.decode(&copy, id, record.start, end, log.major) else { continue };
                let count = counts.entry(record.rmid).or_default();
                match apply(&context, &damaged, &target, &mut other) {
                    Ok(Applied::Changed) => count[0] += 1,
                    Err(_) => count[1] += 1,
                    Ok(_) => count[2] += 1,
                }
                let _ = mask(log.major, record.rmid, target.page.fork as u8, target.page.block, &mut other);
            }
            let _ = apply(&context, &record, &target, page);
        }
    }
    for (rmid, [changed, misfit, other]) in counts {
        println!("{:<18} {changed:>10} changed {misfit:>10} do not fit {other:>10} others", rmgr_name(rmid));
    }
    Ok(())
}

/// Changes a few bytes behind a place: bits, zeros, all ones, small steps.
fn damage(random: &mut Random, bytes: &mut [u8], from: usize) {
    if from >= bytes.len() {
        return;
    }
    for _ in 0..=random.below(3) {
        // Headers are where it matters, and the end of a page.
        let reach = match random.below(3) {
            0 => 48,
            1 => 400,
            _ => bytes.len(),
        };
        let within = random.index((bytes.len() - from).min(reach));
        let at = if random.below(5) == 0 { bytes.len() - 1 - within } else { from + within };
        bytes[at] = match random.below(6) {
            0 => 0,
            1 => 0xFF,
            2 => bytes[at].wrapping_add(1),
            3 => bytes[at].wrapping_sub(1),
            4 => random.next() as u8,
            _ => bytes[at] ^ 1 << random.below(8),
        };
    }
}
