//! A block of Oracle 12.1 that was printed in an article together with the server's own dump of it.

use leadline_page::oracle::{block_size, dissect, xor};
use leadline_page::{regions, Part, Value};

fn block() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/oracle/12.1/one_row.block")).unwrap()
}

fn part<'p>(parts: &'p [Part], name: &str, number: Option<u32>) -> &'p Part {
    parts.iter().find(|p| p.name == name && p.number == number).unwrap_or_else(|| panic!("no {name} {number:?}"))
}

fn numbers<const N: usize>(part: &Part, fields: [&str; N]) -> [i64; N] {
    fields.map(|name| match part.field(name).map(|f| &f.value) {
        Some(Value::Number(n)) => *n as i64,
        Some(Value::Signed(n)) => *n,
        other => panic!("{name}: {other:?}"),
    })
}

#[test]
fn the_block_is_what_the_server_dumped() {
    let block = block();
    assert_eq!((block_size(&block), xor(&block)), (Some(8192), 0));
    let found = dissect(&block);
    assert_eq!((found.kind, found.encrypted, found.wrong.as_slice()), ("trans data", false, [].as_slice()));
    let header = part(&found.parts, "header", None);
    let fields = ["type_kcbh", "rdba_kcbh", "bas_kcbh", "wrp_kcbh", "seq_kcbh", "flg_kcbh", "chkval_kcbh"];
    assert_eq!(numbers(header, fields), [6, 0x38b, 0x4e_9af4, 0, 1, 0x06, 0x46dd]);
    let transactions = part(&found.parts, "transaction header", None);
    let fields = ["ktbbhsid", "ktbbhcsc base", "ktbbhict", "ktbbhfnx"];
    assert_eq!(numbers(transactions, fields), [0x1_7bc3, 0x4e_9aed, 2, 0x388]);
    let fields = ["xid usn", "xid slot", "xid sqn", "uba dba", "uba seq", "uba rec", "ktbitflg", "scn base"];
    let itl = numbers(part(&found.parts, "itl", Some(1)), fields);
    assert_eq!(itl, [7, 0x1d, 0x1d0, 0x987, 0x390, 0x27, 0x2001, 0x4e_9af4]);
    assert_eq!(numbers(part(&found.parts, "itl", Some(2)), fields), [0; 8]);
    let directory = part(&found.parts, "row directory", None);
    let fields = ["kdbhntab", "kdbhnrow", "kdbhfrre", "kdbhfsbo", "kdbhfseo", "kdbhavsp", "kdbhtosp", "kdbt nrow"];
    assert_eq!(numbers(directory, fields), [1, 1, -1, 0x14, 0x1f8a, 0x1f76, 0x1f76, 1]);
    assert_eq!(directory.field("offsets").unwrap().value, Value::Numbers(vec![0x1f8a]));
    let row = part(&found.parts, "row", Some(0));
    assert_eq!(numbers(row, ["fb", "lb", "cc"]), [0x2c, 1, 1]);
    assert_eq!(row.field("fb").unwrap().flags, ["L", "F", "H"]);
    assert_eq!((row.end - row.start, &row.field("column").unwrap().value), (14, &Value::Bytes(b"AAAAAAAAAA".to_vec())));
    assert_eq!(numbers(part(&found.parts, "tail", None), ["tailchk"]), [0x9af4_0601]);
}

/// Its header before decryption: flag 0x16. The article prints only the ends of that body, so the checksum is left out.
#[test]
fn an_encrypted_block_is_known_by_its_header() {
    let mut block = block();
    block[15] = 0x12;
    let found = dissect(&block);
    assert!(found.encrypted && found.wrong.is_empty());
    assert_eq!(part(&found.parts, "body", None).fields[0].len, 8168);
    block[15] = 0x16;
    block[16..18].copy_from_slice(&0xf23a_u16.to_le_bytes());
    let classes: Vec<_> = dissect(&block).wrong.iter().map(|w| w.class).collect();
    assert_eq!(classes, ["checksum"]);
}

#[test]
fn a_flipped_bit_anywhere_is_seen_and_nothing_panics() {
    let sound = block();
    let mut block = sound.clone();
    for at in 0..block.len() {
        for bit in [0, 3, 7] {
            block[at] ^= 1 << bit;
            let found = dissect(&block);
            if at != 15 {
                assert!(!found.wrong.is_empty(), "bit {bit} of byte {at}");
            }
            let tiles = regions(&found.parts, block.len());
            assert!(tiles.windows(2).all(|pair| pair[0].end == pair[1].start));
            assert_eq!((tiles[0].start, tiles[tiles.len() - 1].end), (0, block.len()));
            block[at] ^= 1 << bit;
        }
    }
    for length in 0..sound.len() {
        let found = dissect(&sound[..length]);
        assert!(found.wrong.iter().all(|w| w.offset <= length), "{length}: {:?}", found.wrong);
    }
}
