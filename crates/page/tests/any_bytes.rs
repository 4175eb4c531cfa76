//! Whatever the bytes, a page is taken apart without a panic, its regions tile it, and both ways of checking agree.

use leadline_page::postgres::{check, checksum, dissect_block, Fork, Kind};
use leadline_page::{regions, FieldKind};
use leadline_testdata::{plausible, put, Random};

fn assert_sound(page: &[u8], fork: Fork) {
    let found = dissect_block(page, fork, 7);
    let tiles = regions(&found.parts, page.len());
    let mut at = 0;
    for tile in &tiles {
        assert_eq!(tile.start, at, "a gap or an overlap: {tile:?}");
        assert!(tile.end > tile.start && !tile.field.is_empty(), "{tile:?}");
        at = tile.end;
    }
    assert_eq!(at, page.len());
    for wrong in &found.wrong {
        assert!(wrong.offset <= page.len(), "{wrong}");
    }
    let verdict = check(page, fork, None);
    assert_eq!(verdict.kind, found.kind);
    assert!(verdict.wrong.iter().all(|w| found.wrong.contains(w)));
}

/// A special area for each kind of page, by its last bytes.
fn specials() -> Vec<Vec<u8>> {
    let mut all = vec![vec![]];
    for flags in [0u16, 1, 2, 4, 8, 0x104, 0x80, 0x83, 0x10, 0x11] {
        for id in [0u16, 0xff80, 0xff81] {
            let mut b = vec![0; 12];
            b.extend(flags.to_le_bytes());
            b.extend(id.to_le_bytes());
            all.push(b);
        }
        all.push([vec![0, 0, 0, 0, 9, 0], flags.to_le_bytes().to_vec()].concat()); // gin
        all.push([flags.to_le_bytes().to_vec(), vec![0, 0, 0, 0, 0x82, 0xff]].concat());
        // spgist
    }
    all.extend([0x91u8, 0x92, 0x93].map(|t| vec![0, 0, 0, 0, 0, 0, t, 0xf0]));
    all.push(vec![0x17, 0x17, 0, 0, 0, 0, 0, 0]);
    all.extend([0u8, 1].map(|flags| vec![5, 0, flags, 0, 0, 0, 0x83, 0xff])); // bloom
    all
}

#[test]
fn random_bytes_of_any_length() {
    let mut random = Random(1);
    for length in (0..64).chain([1024, 4096, 8192, 8200, 32768, 40000]) {
        for fork in [Fork::Main, Fork::Fsm, Fork::Vm] {
            let page: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            assert_sound(&page, fork);
            assert_sound(&vec![0; length], fork);
            assert_sound(&vec![0xff; length], fork);
        }
    }
}

#[test]
fn pages_of_every_kind_with_random_items() {
    let mut random = Random(2);
    let mut kinds = std::collections::HashSet::new();
    for special in specials() {
        for size in [1024, 8192, 32768] {
            for _ in 0..8 {
                let mut page = plausible(&mut random, size, &special);
                assert_sound(&page, Fork::Main);
                kinds.insert(check(&page, Fork::Main, None).kind);
                for _ in 0..8 {
                    let at = random.index(64.min(size));
                    page[at] = random.next() as u8;
                    assert_sound(&page, Fork::Main);
                }
                page.truncate(random.index(size));
                assert_sound(&page, Fork::Main);
            }
        }
    }
    // All but the maps (which only their file's name tells), new pages and what was meant as something else.
    assert!(kinds.len() >= 29, "{} kinds: {kinds:?}", kinds.len());
}

#[test]
fn real_pages_with_flipped_bytes() {
    let folder = format!("{}/../../testdata/postgres", env!("CARGO_MANIFEST_DIR"));
    let mut random = Random(3);
    let mut pages = 0;
    for version in std::fs::read_dir(folder).unwrap() {
        for file in std::fs::read_dir(version.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_none_or(|e| e != "page") {
                continue;
            }
            let page = std::fs::read(&path).unwrap();
            pages += 1;
            assert_sound(&page, Fork::Main);
            for _ in 0..2000 {
                let mut broken = page.clone();
                for _ in 0..=random.index(4) {
                    let at = random.index(page.len());
                    broken[at] ^= 1 << random.index(8);
                }
                assert_sound(&broken, Fork::Main);
            }
        }
    }
    assert!(pages >= 4);
}

/// Fixed values: those of the server are compared in tests/differential/test_page_live.py.
#[test]
fn a_checksum_depends_on_every_byte_but_its_own_and_on_the_block() {
    let mut page = vec![0x5au8; 8192];
    let before = checksum(&page, 3);
    assert_ne!(before, checksum(&page, 4));
    page[8] = 1;
    page[9] = 2;
    assert_eq!(before, checksum(&page, 3));
    for at in [0, 7, 10, 127, 128, 5000, 8191] {
        page[at] ^= 0x10;
        assert_ne!(before, checksum(&page, 3), "byte {at}");
        page[at] ^= 0x10;
    }
}

fn heap(items: &[(usize, usize)]) -> Vec<u8> {
    let mut page = plausible(&mut Random(9), 8192, &[]);
    page[24..].fill(0);
    let upper = items.iter().map(|i| i.0).min().unwrap();
    put(&mut page, 12, 24 + 4 * items.len() as u16);
    put(&mut page, 14, upper as u16);
    for (i, (off, len)) in items.iter().enumerate() {
        let lp = *off as u32 | 1 << 15 | (*len as u32) << 17;
        page[24 + 4 * i..28 + 4 * i].copy_from_slice(&lp.to_le_bytes());
        page[off + 18] = 1; // one attribute
        page[off + 22] = 24; // t_hoff
    }
    page
}

fn classes(page: &[u8], block: Option<u32>) -> Vec<(&'static str, Option<u32>)> {
    check(page, Fork::Main, block).wrong.iter().map(|w| (w.class, w.item)).collect()
}

#[test]
fn each_defect_is_found_and_named() {
    let sound = heap(&[(8160, 28), (8120, 40), (8080, 28)]);
    assert_eq!(classes(&sound, None), []);
    assert_eq!(classes(&heap(&[(8160, 28), (8120, 41), (8080, 28)]), None), [("overlap", Some(2))]);
    assert_eq!(classes(&heap(&[(8160, 33)]), None), [("line_pointer", Some(1))]);
    assert_eq!(classes(&heap(&[(8164, 28)]), None), [("line_pointer", Some(1))]);
    let mut page = sound.clone();
    page[8120 + 22] = 48;
    assert_eq!(classes(&page, None), [("tuple", Some(2))]);
    page[8120 + 22] = 25;
    assert_eq!(classes(&page, None), [("tuple", Some(2))]);
    let mut page = sound.clone();
    put(&mut page, 14, 9000);
    assert_eq!(classes(&page, None), [("header", None)]);
    let mut page = sound.clone();
    let right = checksum(&page, 5);
    put(&mut page, 8, right);
    assert_eq!(classes(&page, Some(5)), []);
    assert_eq!(classes(&page, Some(6)), [("checksum", None)]);
    let mut torn = heap(&[(4000, 28), (8160, 28)]);
    let right = checksum(&torn, 5);
    put(&mut torn, 8, right);
    torn[4608..].fill(0);
    assert_eq!(classes(&torn, Some(5))[0], ("torn", None));
    let mut random = Random(4);
    let noise: Vec<u8> = (0..8192).map(|_| (random.next() >> 32) as u8).collect();
    assert_eq!(classes(&noise, None), [("encrypted", None)]);
    assert_eq!(check(&[0; 8192], Fork::Main, Some(0)).kind, Kind::New);
}

#[test]
fn a_redirect_leads_to_a_heap_only_tuple() {
    let mut page = heap(&[(8160, 28), (8120, 40), (8080, 28)]);
    let redirect = |page: &mut [u8], to: u32| page[24..28].copy_from_slice(&(to | 2 << 15).to_le_bytes());
    redirect(&mut page, 2);
    assert_eq!(classes(&page, None), [("line_pointer", Some(1))]);
    page[8120 + 19] |= 0x80;
    assert_eq!(classes(&page, None), []);
    page[32..36].fill(0);
    redirect(&mut page, 3);
    assert_eq!(classes(&page, None), [("line_pointer", Some(1))]);
}

/// A page with this special area, `contents` behind its header, and one item.
fn index(special: &[u8], contents: &[u8], item: &[u8]) -> Vec<u8> {
    let mut page = plausible(&mut Random(9), 8192, special);
    let special_at = 8192 - special.len();
    let upper = special_at - item.len();
    page[24..special_at].fill(0);
    page[24..24 + contents.len()].copy_from_slice(contents);
    page[upper..special_at].copy_from_slice(item);
    let mut lower = 24 + contents.len();
    if !item.is_empty() {
        let lp = upper as u32 | 1 << 15 | (item.len() as u32) << 17;
        page[lower..lower + 4].copy_from_slice(&lp.to_le_bytes());
        lower += 4;
    }
    put(&mut page, 12, lower as u16);
    put(&mut page, 14, upper as u16);
    page
}

const BTREE_LEAF: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];

#[test]
fn sizes_levels_and_magic_numbers_are_those_of_the_access_method() {
    let wrong = |special: &[u8], contents: &[u8], item: &[u8]| classes(&index(special, contents, item), None);
    let tuple = |size: u8| [[0, 0, 0, 0, 1, 0, size, 0], [7; 8]].concat();
    assert_eq!(wrong(&BTREE_LEAF, &[], &tuple(16)), []);
    assert_eq!(wrong(&BTREE_LEAF, &[], &tuple(24)), [("tuple", Some(1))]);
    let mut level_1 = BTREE_LEAF;
    level_1[8] = 1;
    assert_eq!(wrong(&level_1, &[], &tuple(16)), [("special", None)]);
    level_1[12] = 0;
    assert_eq!(wrong(&level_1, &[], &tuple(16)), []);
    let spgist_leaf = [4, 0, 0, 0, 0, 0, 0x82, 0xff];
    assert_eq!(wrong(&spgist_leaf, &[], &[&[24 << 2][..], &[0; 23]].concat()), []);
    assert_eq!(wrong(&spgist_leaf, &[], &[&[25 << 2][..], &[0; 23]].concat()), [("tuple", Some(1))]);
    let metas: [([u8; 16], usize, u32); 5] = [
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0], 16, 0x05_3162),
        ([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0x80, 0xff], 16, 0x0644_0640),
        ([1, 0, 0, 0, 0, 0, 0x82, 0xff, 0, 0, 0, 0, 0, 0, 0, 0], 8, 0xba0b_abee),
        ([0, 0, 0, 0, 0, 0, 0x91, 0xf0, 0, 0, 0, 0, 0, 0, 0, 0], 8, 0xa810_9cfa),
        ([0, 0, 1, 0, 0, 0, 0x83, 0xff, 0, 0, 0, 0, 0, 0, 0, 0], 8, 0xdbac_0ded),
    ];
    for (special, len, magic) in metas {
        let mut contents = vec![0; 2000];
        contents[..4].copy_from_slice(&magic.to_le_bytes());
        assert_eq!(wrong(&special[..len], &contents, &[]), [], "{magic:#x}");
        contents[3] ^= 1;
        assert_eq!(wrong(&special[..len], &contents, &[]), [("meta", None)], "{magic:#x}");
    }
    // A posting tree's leaf: its right bound, then a list of two TIDs in a byte.
    let gin_leaf = [0, 0, 0, 0, 0, 0, 0x83, 0];
    let list = |nbytes: u8| [&[0; 8][..], &[0, 0, 0, 0, 1, 0, nbytes, 0], &[1, 0]].concat();
    assert_eq!(wrong(&gin_leaf, &list(1), &[]), []);
    assert_eq!(wrong(&gin_leaf, &list(3), &[]), [("posting_list", None)]);
}

#[test]
fn lists_and_nodes_end_where_their_item_does() {
    let wrong = |special: &[u8], item: &[u8]| classes(&index(special, &[], item), None);
    let gin_leaf = [0, 0, 0, 0, 0, 0, 2, 0];
    let spgist_inner = [0, 0, 0, 0, 0, 0, 0x82, 0xff];
    // A list of so many TIDs at 16; one packed into so many bytes there; so many nodes behind a prefix of four words.
    let posting = |n: u8| [[0, 0, 16, 0, n, 0x20, 32, 0x20], [7; 8], [0; 8], [0; 8]].concat();
    let packed = |n: u8| [[0, 0x80, 16, 0, 3, 0, 32, 0], [7; 8], [0, 0, 0, 0, 1, 0, n, 0], [1; 8]].concat();
    let inner =
        |n: u8| [[n << 3, 0, 8, 0, 32, 0, 0, 0], [7; 8], [0, 0, 0, 0, 1, 0, 8, 0], [0, 0, 0, 0, 2, 0, 8, 0]].concat();
    assert_eq!(wrong(&BTREE_LEAF, &posting(2)), []);
    assert_eq!(wrong(&BTREE_LEAF, &posting(3)), [("truncated", Some(1))]);
    assert_eq!(wrong(&gin_leaf, &packed(8)), []);
    assert_eq!(wrong(&gin_leaf, &packed(9)), [("truncated", Some(1))]);
    assert_eq!(wrong(&spgist_inner, &inner(2)), []);
    assert_eq!(wrong(&spgist_inner, &inner(3)), [("truncated", Some(1))]);
}

#[test]
fn of_a_posting_list_of_nulls_there_is_no_key() {
    let head = [0, 0, 16, 0, 2, 0x20, 32, 0xa0]; // two TIDs at 16; a null bitmap
    let tids = [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0];
    let found = dissect_block(&index(&BTREE_LEAF, &[], &[&head[..], &[0; 8], &tids].concat()), Fork::Main, 1);
    let item = found.parts.iter().find(|part| part.name == "item").unwrap();
    assert_eq!(item.field("tids").map(|f| f.value.to_string()).as_deref(), Some("(0,1) (0,2)"));
    assert_eq!(item.field("data"), None);
}

#[test]
fn signatures_of_bloom_share_the_room_that_is_taken() {
    let tuple = |posid: u8| [0, 0, 0, 0, posid, 0, 0xaa, 0xbb, 0xcc, 0xdd];
    let page = index(&[2, 0, 0, 0, 0, 0, 0x83, 0xff], &[tuple(1), tuple(2)].concat(), &[]);
    let found = dissect_block(&page, Fork::Main, 1);
    let items: Vec<_> = found.parts.iter().filter(|part| part.name == "item").collect();
    let shown: Vec<_> = items.iter().flat_map(|item| item.fields.iter().map(|f| f.value.to_string())).collect();
    assert_eq!(classes(&page, None), []);
    let three = index(&[3, 0, 0, 0, 0, 0, 0x83, 0xff], &[tuple(1), tuple(2)].concat(), &[]);
    assert_eq!(classes(&three, None), [("special", None)]);
    assert_eq!((found.kind, shown), (Kind::Bloom, ["(0,1)", "aabbccdd", "(0,2)", "aabbccdd"].map(Into::into).to_vec()));
}

#[test]
fn the_free_room_of_a_page_is_named_as_such() {
    let page = heap(&[(8160, 28)]);
    let tiles = regions(&dissect_block(&page, Fork::Main, 0).parts, page.len());
    let free: Vec<_> = tiles.iter().filter(|t| t.kind == FieldKind::Free).map(|t| (t.start, t.end)).collect();
    assert_eq!(free, [(28, 8160)]);
    let last = tiles.last().map(|t| (t.field, t.start, t.end));
    assert_eq!(last, Some(("unused", 8188, 8192)));
}
