//! Page images of servers built with any size of page: the log does not say which.

mod made;

use std::sync::Arc;

use leadline_testdata::Random;
use leadline_wal::{image, Reader, Wal};
use made::{Folder, Writer, MAGIC_18};

const HAS_HOLE: u8 = 0x01;
const APPLY: u8 = 0x02;

/// A page with a header, a few bytes at both ends and nothing from `lower` to `upper`.
fn page(size: usize, lower: usize, upper: usize) -> Vec<u8> {
    let mut random = Random(size as u64);
    let mut page = vec![0; size];
    page[..lower].iter_mut().for_each(|byte| *byte = random.below(7) as u8);
    page[upper..].iter_mut().for_each(|byte| *byte = random.below(7) as u8);
    for (at, word) in [(12, lower), (14, upper), (16, size), (18, size | 4)] {
        page[at..at + 2].copy_from_slice(&(word as u16).to_le_bytes());
    }
    page
}

/// A reference to block 9 with an image, and the image.
fn body(stored: &[u8], hole_offset: usize, info: u8, hole_length: Option<usize>) -> Vec<u8> {
    let mut body = vec![0, 0x10, 0, 0];
    body.extend((stored.len() as u16).to_le_bytes());
    body.extend((hole_offset as u16).to_le_bytes());
    body.push(info | APPLY);
    body.extend(hole_length.into_iter().flat_map(|length| (length as u16).to_le_bytes()));
    [1663u32, 5, 16384, 9].iter().for_each(|word| body.extend(word.to_le_bytes()));
    [&body, stored].concat()
}

#[test]
fn an_image_is_a_page_of_the_size_that_the_server_has() {
    let folder = Folder::new("images");
    for size in [1024, 2048, 4096, 8192, 16384, 32768] {
        let (lower, upper) = (size / 4, size / 2);
        let page = page(size, lower, upper);
        let packed = |plain: &[u8]| (lz4_flex::block::compress(plain), zstd::bulk::compress(plain, 1).unwrap());
        let short = [&page[..lower], &page[upper..]].concat();
        let ((lz4, zstd), (short_lz4, short_zstd)) = (packed(&page), packed(&short));
        let mut writer = Writer::new(MAGIC_18, 1, 1);
        let hole = Some(upper - lower);
        for body in [
            body(&page, 0, 0, None),
            body(&short, lower, HAS_HOLE, None),
            body(&lz4, 0, 0x08, None),
            body(&zstd, 0, 0x10, None),
            body(&short_lz4, lower, HAS_HOLE | 0x08, hole),
            body(&short_zstd, lower, HAS_HOLE | 0x10, hole),
        ] {
            writer.put(1, 10, 0, &body);
        }
        writer.store(&folder.0);
        let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
        let mut reader = Reader::new(log.clone(), log.range(None, None).unwrap());
        let mut seen = 0;
        while let Some(record) = reader.next_record().unwrap() {
            let block = record.blocks[0];
            assert_eq!(image::page(&record, &block).unwrap().as_ref(), Some(&page), "{size}, image {seen}");
            assert_eq!(usize::from(block.hole_length), if block.hole_offset > 0 { upper - lower } else { 0 }, "{size}");
            seen += 1;
        }
        assert_eq!(seen, 6, "{size}");
    }
}
