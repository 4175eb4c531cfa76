//! Records of indexes made of noise on pages made of noise: redo says what does not fit, and never panics or goes on for ever.

mod made;

use leadline_redo::Applied;
use leadline_testdata::{noise, plausible, put, Random};
use made::Made;

/// Resource manager, bytes of the pages' special area, and the highest opcode.
const INDEXES: [(u8, usize, u8); 5] = [(11, 16, 0xE0), (12, 16, 0xC0), (13, 8, 0x90), (14, 16, 0x70), (16, 8, 0x80)];

/// Small numbers are what offset numbers, counts and flags are made of.
fn mostly_small(random: &mut Random, length: usize) -> Vec<u8> {
    let mut bytes = noise(random, length);
    for at in (0..length.saturating_sub(1)).step_by(2) {
        if random.below(3) > 0 {
            put(&mut bytes, at, random.below(14) as u16);
        }
    }
    bytes
}

/// Such numbers, and behind them tuples of SP-GiST leaves, of its inner tuples, or of other indexes.
fn data(random: &mut Random, most: usize) -> Vec<u8> {
    let length = random.index(most);
    let mut data = mostly_small(random, length);
    for _ in 0..random.below(4) {
        let length = 8 * (1 + random.index(5));
        let mut tuple = noise(random, length);
        match random.below(3) {
            0 => put(&mut tuple, 0, (length as u16) << 2 | 3),
            1 => put(&mut tuple, 4, length as u16),
            _ => put(&mut tuple, 6, length as u16),
        }
        data.extend_from_slice(&tuple);
    }
    data
}

#[test]
fn noise_is_applied_or_does_not_fit() {
    let mut random = Random(14);
    for (rmid, special, highest) in INDEXES {
        let (mut fit, mut misfit) = (0, 0);
        for _ in 0..20_000 {
            let opcode = (random.below(u64::from(highest) / 16 + 1) * 16) as u8;
            let main = data(&mut random, 60);
            let mut record = Made::new(13 + random.below(6) as u8, rmid, opcode, &main);
            let last = random.below(5) as u8;
            for id in 0..=last {
                let is_made_anew = random.below(4) == 0;
                record = record.block(id, 0, random.below(3) as u32, is_made_anew, &data(&mut random, 40));
            }
            for id in 0..=last {
                let area = noise(&mut random, special);
                match record.apply(id, &mut plausible(&mut random, 8192, &area)) {
                    Ok(Applied::Changed) => fit += 1,
                    Ok(_) => {}
                    Err(_) => misfit += 1,
                }
            }
        }
        assert!(fit > 500 && misfit > 500, "resource manager {rmid}: {fit} fit, {misfit} do not");
    }
}
