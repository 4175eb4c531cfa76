//! Pages of PostgreSQL 9.6 that were printed in an article together with what pageinspect said about them.

use leadline_page::postgres::{dissect, Fork, Kind};
use leadline_page::{Part, Tid, Value};

fn page(name: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../../testdata/postgres/9.6/{name}.page", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn number(part: &Part, field: &str) -> u64 {
    part.number_of(field).unwrap_or_else(|| panic!("no {field} in {part:?}"))
}

fn parts<'p>(all: &'p [Part], name: &str) -> Vec<&'p Part> {
    all.iter().filter(|p| p.name == name).collect()
}

#[test]
fn the_heap_page_holds_the_four_rows() {
    let found = dissect(&page("heap_4_rows"), Fork::Main);
    assert_eq!((found.kind, found.wrong.as_slice()), (Kind::Heap, [].as_slice()));
    let header = &found.parts[0];
    assert_eq!(header.field("pd_lsn").unwrap().value, Value::Lsn(0x0157_6BA8));
    let fields =
        ["pd_checksum", "pd_flags", "pd_lower", "pd_upper", "pd_special", "pagesize", "version", "pd_prune_xid"];
    assert_eq!(fields.map(|f| number(header, f)), [0, 0, 40, 8032, 8192, 8192, 4, 0]);
    let pointers = parts(&found.parts, "line pointer");
    let places: Vec<_> = pointers.iter().map(|p| ["lp_off", "lp_flags", "lp_len"].map(|f| number(p, f))).collect();
    assert_eq!(places, [[8152, 1, 39], [8112, 1, 39], [8072, 1, 39], [8032, 1, 39]]);
    for (i, (tuple, letter)) in parts(&found.parts, "tuple").iter().zip(b"abcd").enumerate() {
        let posid = i as u16 + 1;
        let fields = ["t_xmin", "t_xmax", "t_field3", "t_infomask2", "t_infomask", "t_hoff"];
        assert_eq!(fields.map(|f| number(tuple, f)), [1760, 0, 0, 2, 2050, 24]);
        assert_eq!(tuple.field("t_infomask").unwrap().flags, ["HEAP_HASVARWIDTH", "HEAP_XMAX_INVALID"]);
        assert_eq!(tuple.field("t_ctid").unwrap().value, Value::Tid(Tid { block: 0, posid }));
        let mut row = vec![posid as u8, 0, 0, 0, 0x17];
        row.extend([*letter; 10]);
        assert_eq!(tuple.field("t_data").unwrap().value, Value::Bytes(row));
    }
}

/// (TID's line pointer, size, first byte of the key) of each item.
fn keys(name: &str) -> Vec<(u16, u64, u8)> {
    let found = dissect(&page(name), Fork::Main);
    assert_eq!((found.kind, found.wrong.as_slice()), (Kind::BtreeLeaf, [].as_slice()));
    let special = parts(&found.parts, "special")[0];
    assert_eq!(["btpo_prev", "btpo_next", "btpo_level", "btpo_flags"].map(|f| number(special, f)), [0, 0, 0, 3]);
    assert_eq!(special.field("btpo_flags").unwrap().flags, ["BTP_LEAF", "BTP_ROOT"]);
    let item = |part: &&Part| match (&part.field("t_tid").unwrap().value, &part.field("data").unwrap().value) {
        (Value::Tid(tid), Value::Bytes(key)) => (tid.posid, number(part, "itemlen"), key[0]),
        other => panic!("{other:?}"),
    };
    parts(&found.parts, "item").iter().map(item).collect()
}

#[test]
fn the_index_pages_hold_their_keys_in_order_wherever_the_items_lie() {
    let four = [(1, 16, 1), (2, 16, 2), (3, 16, 3), (4, 16, 4)];
    assert_eq!(keys("btree_4_keys"), four);
    assert_eq!(keys("btree_key_6_added")[4..], [(5, 16, 6)]);
    assert_eq!(keys("btree_key_5_added")[4..], [(6, 16, 5), (5, 16, 6)]);
    let found = dissect(&page("btree_4_keys"), Fork::Main);
    let summary = parts(&found.parts, "summary")[0];
    let fields = ["live_items", "dead_items", "avg_item_size", "free_size"];
    assert_eq!(fields.map(|f| number(summary, f)), [4, 0, 16, 8068]);
}
