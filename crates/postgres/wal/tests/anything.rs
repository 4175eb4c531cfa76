//! Records whose frame is right and whose content is anything: everything that looks into them must end and not panic.

mod made;

use std::sync::Arc;

use leadline_testdata::{noise, Random};
use leadline_wal::describe::{describe, messages, outcome, time_of};
use leadline_wal::{history, image, rmgr, stats, Filter, Reader, Wal};
use made::{Folder, Writer};

const MAGICS: [u16; 6] = [0xD106, 0xD10D, 0xD110, 0xD113, 0xD116, 0xD118];

/// A body with block headers that are often right, and parts of the length they say.
fn body(random: &mut Random, major_at_15: bool) -> Vec<u8> {
    let (mut head, mut parts) = (Vec::new(), Vec::new());
    for id in 0..random.below(4) as u8 {
        let image = random.below(3) == 0;
        let data = random.below(40) as usize;
        head.extend([id, random.below(4) as u8 | u8::from(image) << 4 | u8::from(data > 0) << 5]);
        head.extend((data as u16).to_le_bytes());
        if image {
            let length = 1 + random.below(300) as usize;
            let method = if major_at_15 { 4 << random.below(3) } else { 2 };
            head.extend((length as u16).to_le_bytes());
            head.extend(100u16.to_le_bytes());
            head.push(1 | method);
            head.extend(50u16.to_le_bytes());
            parts.extend(noise(random, length));
        }
        [1663, 5, 16384 + random.below(3) as u32].iter().for_each(|w| head.extend(w.to_le_bytes()));
        head.extend((random.below(5) as u32).to_le_bytes());
        parts.extend(noise(random, data));
    }
    let main = random.below(200) as usize;
    head.extend([255, main as u8]);
    parts.extend(noise(random, main));
    [head, parts].concat()
}

#[test]
fn no_content_makes_a_decoder_panic() {
    let folder = Folder::new("anything");
    for (n, magic) in MAGICS.into_iter().enumerate() {
        let mut random = Random(100 + n as u64);
        let mut writer = Writer::new(magic, 1, 1);
        let mut written = 0;
        for rmid in (0..22u8).chain([128, 255]) {
            for opcode in 0..16u8 {
                if (rmid, opcode) == (0, 4) {
                    continue; // a switch would leave the rest of the segment empty
                }
                for _ in 0..12 {
                    let body = body(&mut random, magic >= 0xD110);
                    writer.put(random.below(5) as u32, rmid, opcode << 4, &body);
                    written += 1;
                }
            }
        }
        std::fs::remove_dir_all(&folder.0).unwrap();
        std::fs::create_dir_all(&folder.0).unwrap();
        writer.store(&folder.0);
        let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
        let range = log.range(None, None).unwrap();
        let mut reader = Reader::new(log.clone(), range);
        let (mut seen, mut fields, mut refused) = (0, 0, 0);
        while let Some(record) = reader.next_record().unwrap() {
            seen += 1;
            fields += describe(&record).len() + messages(&record).known.len();
            let _ = (outcome(&record), time_of(&record), rmgr::record_type(record.major, record.rmid, record.info));
            for block in record.blocks.iter().filter(|b| b.has_image) {
                refused += usize::from(image::page(&record, block).is_err());
            }
        }
        assert_eq!(seen, written);
        assert!(fields > 1000 && refused > 100, "{fields} fields, {refused} images refused");
        let filter = Filter { rel: Some(16384), block: Some(0), ..Filter::default() };
        let (changes, _) = history::history(&log, range, &filter, &mut |_| true).unwrap();
        assert!(!changes.is_empty());
        for threads in [1, 3] {
            let sums =
                stats::stats(&log, range, stats::By::Relation, threads, &|_| true, false, &mut |_| true).unwrap();
            assert_eq!(sums.sums.iter().map(|(_, s)| s.records).sum::<u64>(), written);
        }
    }
}
