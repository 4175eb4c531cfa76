//! Both forms of rows, of records made by hand.

use std::sync::Arc;

use super::*;
use crate::history::history;
use crate::wal::{Range, Wal};
use crate::Filter;

use crate::made::{block_body, Folder, Writer, MAGIC_18};

const XACT: u8 = 1;
const HEAP: u8 = 10;

/// A transaction that inserts a row and sends the same message twice, and a logical message with odd characters.
fn log(name: &str) -> (Folder, Arc<Wal>) {
    let folder = Folder::new(name);
    let mut writer = Writer::new(MAGIC_18, 1, 1);
    writer.put(7, HEAP, 0, &block_body(1663, 5, 16384, 3, b"row", &[9, 0, 8]));
    writer.main(
        0,
        21,
        0,
        &[&5u32.to_le_bytes()[..], &[0; 4], &3u64.to_le_bytes(), &0u64.to_le_bytes(), b"a\"\n\0"].concat(),
    );
    let message = [&[0xFE, 0, 0, 0][..], &5u32.to_le_bytes(), &16384u32.to_le_bytes(), &[0; 4]].concat();
    let commit = [&0i64.to_le_bytes()[..], &8u32.to_le_bytes(), &2u32.to_le_bytes(), &message, &message].concat();
    writer.main(7, XACT, 0x80, &commit);
    writer.store(&folder.0);
    let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
    (folder, log)
}

fn printed(log: &Arc<Wal>, range: Range, what: What, form: Form, limit: usize) -> Vec<Part> {
    let mut stream = Stream::new(log, range, Filter::default());
    let mut left = limit;
    let mut parts = Vec::new();
    while left > 0 {
        let Some(part) = stream.next(what, form, left).unwrap() else { break };
        left -= part.records;
        parts.push(part);
    }
    parts
}

fn text(parts: &[Part]) -> String {
    parts.iter().map(|part| part.text.as_str()).collect()
}

#[test]
fn records_are_lines_or_objects() {
    let (_folder, log) = log("print-records");
    let range = log.range(None, None).unwrap();
    let shown = text(&printed(&log, range, What::Records, Form::Text, 9));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "0/100028  xid 7  Heap/INSERT  52 bytes");
    assert_eq!(lines[1], "    block 0: 1663/5/16384 page 3, data 3 bytes");
    assert_eq!(lines[2], "    off 9, flags 8");
    assert!(lines[3].contains("  LogicalMessage/MESSAGE  "), "{shown}");
    assert!(shown.contains("prefix a\"\n"), "{shown}");
    let objects = text(&printed(&log, range, What::Records, Form::Json, 9));
    let first = objects.lines().next().unwrap();
    assert!(first.starts_with("{\"lsn\": \"0/100028\", \"end_lsn\": \"0/") && first.ends_with("},"), "{first}");
    assert!(first.contains("\"fork\": \"main\", \"block\": 3, \"will_init\": false, \"has_image\": false"), "{first}");
    assert!(first.contains("\"description\": {\"off\": 9, \"flags\": 8}"), "{first}");
    assert!(objects.contains("\"a\\\"\\n"), "{objects}");
    let one = printed(&log, range, What::Records, Form::Json, 1);
    assert_eq!((one.len(), one[0].records, one[0].text.as_str()), (1, 1, first.trim_end_matches(',')));
}

#[test]
fn a_message_that_is_sent_twice_is_told_once() {
    let (_folder, log) = log("print-messages");
    let range = log.range(None, None).unwrap();
    let shown = text(&printed(&log, range, What::Invalidations, Form::Text, 9));
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(lines[0].ends_with("  Transaction/COMMIT  xid 7  2000-01-01 00:00:00.000000"), "{shown}");
    assert_eq!(lines[1], "    relcache 5/16384 x2");
    let object = text(&printed(&log, range, What::Invalidations, Form::Json, 9));
    assert!(
        object.contains("\"xid\": 7, ") && object.contains("\"time\": \"2000-01-01T00:00:00.000000Z\""),
        "{object}"
    );
    assert!(object.ends_with("\"message_count\": 2, \"messages_before\": 0}"), "{object}");
}

#[test]
fn a_change_tells_how_its_transaction_ended() {
    let (_folder, log) = log("print-changes");
    let filter = Filter { rel: Some(16384), block: Some(3), ..Filter::default() };
    let (changes, _) = history(&log, log.range(None, None).unwrap(), &filter, &mut |_| true).unwrap();
    let of = |form, change: &Change| {
        let mut printer = Printer::new(form, 18);
        printer.change(change);
        printer.take()
    };
    assert_eq!(
        of(Form::Text, &changes[0]),
        "0/100028  Heap/INSERT  xid 7 commit  2000-01-01 00:00:00.000000\n    off 9, flags 8\n"
    );
    let object = of(Form::Json, &changes[0]);
    assert!(
        object.contains("\"log_time\": null, \"outcome\": \"commit\", \"outcome_time\": \"2000-01-01T"),
        "{object}"
    );
    let open = Change { outcome: None, log_time: Some(0), block: None, ..changes[0].clone() };
    assert_eq!(
        of(Form::Text, &open),
        "0/100028  Heap/INSERT  xid 7 end not in the WAL  ~1970-01-01 00:00:00.000000\n    truncated, off 9, flags 8\n"
    );
    assert!(of(Form::Json, &open).contains("\"block\": null, "));
}

#[test]
fn numbers_are_those_of_the_formatter() {
    for n in [0u64, 1, 15, 16, 0xFFFF_FFFF, 0x1_0000_0000, 0x16_B374_D848, u64::MAX] {
        let (mut hex, mut grouped) = (String::new(), String::new());
        write::lsn(&mut hex, Lsn(n));
        write::grouped(&mut grouped, n as usize);
        assert_eq!((hex, grouped.replace(',', "")), (Lsn(n).to_string(), n.to_string()));
    }
    let mut grouped = String::new();
    write::grouped(&mut grouped, 1_234_567);
    assert_eq!(grouped, "1,234,567");
}
