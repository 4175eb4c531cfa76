//! A record kept for one of its blocks is, to whoever redoes that block, the record.

mod made;

use std::sync::Arc;

use leadline_wal::{image, Decoder, Reader, Wal};
use made::{Folder, Writer, MAGIC_18};

/// Two blocks with images, two with data, and main data.
fn body() -> Vec<u8> {
    let mut body = Vec::new();
    for (id, with_image) in [(0u8, true), (1, false), (2, true), (5, false)] {
        body.extend([id, if with_image { 0x10 } else { 0x20 }]);
        body.extend((if with_image { 0u16 } else { 3 }).to_le_bytes());
        if with_image {
            body.extend(8192u16.to_le_bytes());
            body.extend([0, 0, 2]); // no hole, to be applied
        }
        [1663u32, 5, 16384, u32::from(id)].iter().for_each(|word| body.extend(word.to_le_bytes()));
    }
    body.extend([255, 4]);
    body.extend([0x11; 8192]);
    body.extend(b"one");
    body.extend([0x22; 8192]);
    body.extend(b"two");
    body.extend(b"main");
    body
}

#[test]
fn a_copy_has_the_image_of_its_block_and_all_data() {
    let folder = Folder::new("copies");
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    writer.put(7, 10, 0, &body());
    writer.store(&folder.0);
    let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
    let mut reader = Reader::new(log.clone(), log.range(None, None).unwrap());
    let record = reader.next_record().unwrap().unwrap();
    let mut decoder = Decoder::default();
    for (kept, images) in [(None, 0), (Some(0), 1), (Some(1), 0), (Some(2), 1)] {
        let mut bytes = vec![9];
        let length = record.copy_for(kept, &mut bytes);
        assert_eq!(length + 1, bytes.len());
        assert_eq!(length, record.length() - (2 - images) * 8192);
        let copy = decoder.decode(&bytes[1..], kept, record.start, record.end, 18).unwrap();
        assert_eq!((copy.start, copy.end, copy.xid, copy.rmid), (record.start, record.end, 7, 10));
        assert_eq!((copy.main_data(), copy.blocks.len()), (&b"main"[..], 4));
        for (block, original) in copy.blocks.iter().zip(record.blocks) {
            assert_eq!((block.id, block.block, block.has_image), (original.id, original.block, original.has_image));
            assert_eq!(copy.data_of(block), record.data_of(original));
            if kept == Some(block.id) {
                assert_eq!(image::page(&copy, block).unwrap(), image::page(&record, original).unwrap());
            } else {
                assert_eq!(copy.image_of(block), b"");
            }
        }
        assert!(decoder.decode(&bytes[1..length], kept, record.start, record.end, 18).is_none(), "cut short");
    }
}
