//! The log: segments, records, page images.

use std::path::Path;
use std::sync::Arc;

use leadline_page::postgres::DEFAULT_BLOCK_SIZE;
use leadline_wal::describe::{describe, messages, outcome, time_of, Value};
use leadline_wal::kept::Kept;
use leadline_wal::print::{Form, Printer};
use leadline_wal::{fuzzing, image, rmgr, Kind, Reader, Record, Wal};

use crate::folder::Folder;
use crate::made::{Writer, SEGMENT};
use crate::{choice, number};

/// The magic numbers of the majors that are read, 13 first.
pub(crate) const MAGICS: [u16; 6] = [0xD106, 0xD10D, 0xD110, 0xD113, 0xD116, 0xD118];

/// Most values for each byte of a record: a byte of flags becomes the names of its five bits, 16 of a message four values.
const VALUES: usize = 8;
/// Most bytes of text for each value.
const TEXT: usize = 64;

/// A segment of any major. The first byte chooses how much of it is right:
/// nothing, the header of its first page, or records of the rest's content laid out with right headers and sums, of which
/// a few bytes are then overwritten.
pub fn wal_segment(data: &[u8]) -> &'static str {
    let (how, rest) = choice(data);
    let (major, rest) = choice(rest);
    let (segment, rest) = choice(rest);
    // The last segments there can be too: their ends are beyond 64 bits.
    let segment = if segment < 250 { segment as u64 + 1 } else { (u64::MAX / SEGMENT) - (255 - segment as u64) };
    let mut writer = Writer::new(MAGICS[major % 6], 1, 1);
    writer.at = segment * SEGMENT;
    let suffix = match how / 4 % 8 {
        0 => "",
        1 => ".partial.gz",
        2 => ".partial.lz4",
        3 => ".partial.zst",
        _ => ".partial",
    };
    let bytes = match how % 4 {
        0 => rest.to_vec(),
        1 => {
            writer.put(0, 0, 0x20, &[255, 0]);
            [&writer.bytes[..40], rest].concat()
        }
        _ => records(writer, rest),
    };
    let name = format!("00000001{:08X}{:08X}{suffix}", segment >> 12, segment & 0xFFF);
    let folder = Folder::with([(name.as_str(), &bytes[..])]);
    read(&folder.0, bytes.len())
}

/// The input as records, each with four bytes that say what it is. What a record leaves over of the input, if it begins with
/// zero, overwrites bytes: place and value.
fn records(mut writer: Writer, mut rest: &[u8]) -> Vec<u8> {
    let mut over = &[][..];
    for _ in 0..200 {
        let [rmid, info, xid, length, tail @ ..] = rest else { break };
        if *rmid == 255 {
            over = tail;
            break;
        }
        if (*rmid, info & 0xF0) == (0, 0x40) {
            break; // a switch would fill the segment
        }
        // Some records are longer than a page of the log.
        let repeat = if length % 16 == 15 { 400 } else { 1 };
        let body = &tail[..tail.len().min(usize::from(*length))];
        rest = &tail[body.len()..];
        if info & 1 == 0 {
            writer.main((*xid).into(), *rmid, *info, &body.repeat(repeat));
        } else {
            writer.put((*xid).into(), *rmid, *info, body);
        }
    }
    let mut bytes = writer.bytes;
    for place in over.chunks_exact(3) {
        let (at, value) = (number(place).0, place[2]);
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
    }
    bytes
}

/// What is seen of records and their end does not depend on how much of long ones is kept.
fn read(folder: &Path, size: usize) -> &'static str {
    let [mut whole, mut short] = [Vec::new(), Vec::new()];
    let reached = read_keeping(folder, size, None, &mut whole);
    let kept = Kept { front: 4096, main: 100, piece: 40 };
    assert_eq!(read_keeping(folder, size, Some(kept), &mut short), reached);
    assert!(whole == short, "{} records, {} of them shortened", whole.len(), short.len());
    reached
}

/// Start, end, length and length of the main data.
type Seen = (u64, u64, usize, usize);

fn read_keeping(folder: &Path, size: usize, kept: Option<Kept>, found: &mut Vec<Seen>) -> &'static str {
    let log = match Wal::open(folder, None, None, None) {
        Ok(log) => Arc::new(kept.into_iter().fold(log, Wal::keeping)),
        Err(e) => {
            assert!(!e.message.is_empty());
            return e.kind.as_str();
        }
    };
    let bounds = log.bounds();
    assert!(bounds.from < bounds.to);
    let Ok(range) = log.range(None, None) else { panic!("all of a log is a part of it") };
    let mut reader = Reader::new(log.clone(), range);
    let (mut before, mut seen) = (bounds.from, 0u64);
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                assert!(record.start >= before && record.end > record.start, "{} to {}", record.start, record.end);
                before = record.end;
                seen += 1;
                found.push((record.start.0, record.end.0, record.length(), record.main_length()));
                looked_into(&record);
            }
            Ok(None) => break,
            Err(e) => {
                assert!(!e.message.is_empty() && !e.place.is_empty(), "{e}");
                let _ = reader.next_record(); // a caller may go on all the same
                return if seen > 0 { "damaged after records" } else { "damaged" };
            }
        }
    }
    assert!(matches!(reader.next_record(), Ok(None)), "an end is an end");
    // A compressed segment may hold more than its file has.
    assert!(seen <= SEGMENT.max(size as u64) / 24, "{seen} records in {size} bytes");
    match reader.ending().early {
        Some((at, _)) => assert!(bounds.from <= at && at <= bounds.to, "it ends at {at}"),
        None => assert!(seen > 0 || size > 0),
    }
    if seen > 0 {
        "records"
    } else {
        "no records"
    }
}

/// Everything that is said of a record, none of it more than the record has.
fn looked_into(record: &Record<'_>) -> bool {
    let fields = describe(record);
    let (mut values, mut text) = (0, 0);
    fields.iter().for_each(|(_, v)| count(v, &mut values, &mut text));
    assert!(values <= VALUES * record.length() + 64, "{values} values from {} bytes", record.length());
    assert!(text <= TEXT * values + 3 * record.length(), "{text} bytes of text from {}", record.length());
    if let Some(Value::Text(says)) = fields.iter().find(|(name, _)| *name == "truncated").map(|(_, v)| v) {
        let at: usize = says.split(" at offset ").nth(1).and_then(|s| s.split(' ').next()?.parse().ok()).expect(says);
        assert!(at <= record.length(), "{says}, in {} bytes", record.length());
    }
    let sent = messages(record);
    assert!(sent.known.len() + sent.left_out <= record.length() / 16);
    if let Some(outcome) = outcome(record) {
        assert!(
            4 * (outcome.subxacts.known.len() + outcome.subxacts.left_out) + 12 * outcome.dropped.known.len()
                <= record.length()
        );
    }
    let _ = time_of(record);
    for form in [Form::Text, Form::Json] {
        let mut printer = Printer::new(form, record.major);
        printer.record(record);
        let printed = printer.take();
        match form {
            Form::Text => assert!(printed.ends_with('\n') && printed.lines().all(|line| line.chars().count() <= 80)),
            Form::Json => assert!(printed.starts_with("{\"lsn\"") && printed.ends_with('}') && !printed.contains('\n')),
        }
        let most = 64 * (values + record.blocks.len() + 16) + 6 * record.length();
        assert!(printed.len() <= 8 * most, "{} bytes printed of {}", printed.len(), record.length());
    }
    assert!(!rmgr::record_type(record.major, record.rmid, record.info).is_empty());
    let mut parts = record.main_data().len();
    for block in record.blocks {
        parts += record.data_of(block).len() + record.image_of(block).len();
        match image::page(record, block) {
            Ok(Some(page)) => assert!(page.len().is_power_of_two() && (1024..=32768).contains(&page.len())),
            Ok(None) => assert!(!block.has_image),
            Err(e) => assert_eq!(e.kind, Kind::Invalid),
        }
    }
    assert!(parts <= record.length(), "parts overlap");
    fields.iter().any(|(name, _)| *name != "truncated")
}

fn count(value: &Value, values: &mut usize, text: &mut usize) {
    *values += 1;
    match value {
        Value::Text(t) => *text += t.len(),
        Value::List(all) => all.iter().for_each(|v| count(v, values, text)),
        Value::Fields(all) => all.iter().for_each(|(_, v)| count(v, values, text)),
        Value::Int(_) | Value::Bool(_) => {}
    }
}

/// One record of any kind and major. With an even first byte its headers are right, with an odd one they are of the input.
pub fn wal_record(data: &[u8]) -> &'static str {
    let (how, rest) = choice(data);
    let (rmid, rest) = choice(rest);
    let (info, rest) = choice(rest);
    let body = if how & 1 == 0 {
        let (length, rest) = number(rest);
        let (block, main) = rest.split_at(rest.len().min(length % 1024));
        let mut body = Vec::new();
        if !block.is_empty() {
            body.extend([0, 0x20]);
            body.extend((block.len() as u16).to_le_bytes());
            body.extend([0; 16]);
        }
        body.push(254);
        body.extend((main.len() as u32).to_le_bytes());
        [&body, block, main].concat()
    } else {
        rest.to_vec()
    };
    let bytes = [&head(body.len(), rmid as u8, info as u8), &body[..]].concat();
    let major = 13 + (how / 2 % 6) as u8;
    let mut reached = "no record";
    fuzzing::record(&bytes, major, |record| {
        reached = if looked_into(record) { "fields" } else { "no fields" };
    });
    assert!(how & 1 == 1 || reached != "no record", "right headers are refused");
    reached
}

/// The header of a record; its sum is looked at when records are put together, which is behind us here.
pub(crate) fn head(length: usize, rmid: u8, info: u8) -> [u8; 24] {
    let mut head = [0; 24];
    head[..4].copy_from_slice(&((24 + length) as u32).to_le_bytes());
    (head[16], head[17]) = (info, rmid);
    head
}

/// Page images: pglz by itself, and each way of storing an image. The rest of the input is what is stored.
pub fn wal_image(data: &[u8]) -> &'static str {
    let (how, rest) = choice(data);
    let (size, rest) = number(rest);
    let size = size % 8193;
    if how % 4 == 0 {
        return match leadline_bytes::pglz::decompress(rest, size) {
            Some(out) => {
                assert_eq!(out.len(), size);
                // A reference of three bytes gives at most 273.
                assert!(out.len() <= 273 * rest.len(), "{size} bytes from {}", rest.len());
                "pglz"
            }
            None => "no pglz",
        };
    }
    let method = [0, 0x04, 0x08, 0x10][how % 4];
    let (hole, stored) = (size, &rest[..rest.len().min(DEFAULT_BLOCK_SIZE as usize)]);
    let mut body = vec![0, 0x10, 0, 0];
    body.extend((stored.len() as u16).to_le_bytes());
    body.extend((if hole > 0 { DEFAULT_BLOCK_SIZE as u16 - hole as u16 } else { 0 }).to_le_bytes());
    body.push(method | 2 | u8::from(hole > 0));
    if hole > 0 {
        body.extend((hole as u16).to_le_bytes());
    }
    body.extend([0; 16]);
    body.extend(stored);
    let bytes = [&head(body.len(), 10, 0), &body[..]].concat();
    let mut reached = "no image";
    fuzzing::record(&bytes, 18, |record| {
        let unpacked = image::page(record, &record.blocks[0]);
        reached = if unpacked.is_ok() { "image" } else { "damaged image" };
        looked_into(record);
    });
    reached
}
