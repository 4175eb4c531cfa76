//! Rows as JSON objects.

use super::write::{lsn, number};
use super::{compression, fork, Head, Sent};
use crate::describe::{describe, time_text, Field, Value};
use crate::history::Change;
use crate::record::{Block, Record};
use crate::version::image_info;

pub(super) struct Row<'a> {
    out: &'a mut String,
}

impl Row<'_> {
    /// Begins behind the rows that are there.
    pub(super) fn new(out: &mut String) -> Row<'_> {
        if !out.is_empty() {
            out.push_str(",\n");
        }
        Row { out }
    }

    pub(super) fn record(&mut self, record: &Record<'_>, names: (&str, &str)) {
        self.head(&Head::of(record), record.xid, names);
        self.int(", \"top_xid\": ", record.top_xid);
        self.int(", \"origin\": ", record.origin);
        self.int(", \"record_length\": ", record.length());
        self.int(", \"main_data_length\": ", record.main_length());
        self.int(", \"fpi_length\": ", record.image_bytes());
        self.out.push_str(", \"blocks\": [");
        for (n, block) in record.blocks.iter().enumerate() {
            self.out.push_str(if n > 0 { ", " } else { "" });
            self.block(block);
        }
        self.out.push_str("], \"description\": ");
        self.fields(&describe(record));
        self.out.push('}');
    }

    pub(super) fn change(&mut self, change: &Change, names: (&str, &str)) {
        self.out.push_str("{\"lsn\": \"");
        lsn(self.out, change.lsn);
        self.out.push_str("\", \"end_lsn\": \"");
        lsn(self.out, change.end);
        self.int("\", \"xid\": ", change.xid);
        self.names(names);
        self.out.push_str(", \"block\": ");
        match &change.block {
            Some(block) => self.block(block),
            None => self.out.push_str("null"),
        }
        self.out.push_str(", \"description\": ");
        self.fields(&change.description);
        self.time(", \"log_time\": ", change.log_time);
        self.out.push_str(", \"outcome\": ");
        match change.outcome {
            Some((outcome, _)) => self.text(outcome),
            None => self.out.push_str("null"),
        }
        self.time(", \"outcome_time\": ", change.outcome.map(|(_, time)| time));
        self.out.push('}');
    }

    pub(super) fn sent(&mut self, sent: &Sent<'_>, names: (&str, &str)) {
        self.head(&sent.head, sent.ended.map_or(sent.head.xid, |(xid, _)| xid), names);
        self.time(", \"time\": ", sent.ended.map(|(_, time)| time));
        self.out.push_str(", \"messages\": [");
        for (n, message) in sent.messages.iter().enumerate() {
            self.out.push_str(if n > 0 { ", {\"kind\": " } else { "{\"kind\": " });
            self.text(message.kind);
            self.int(", \"db\": ", message.db);
            self.int(", \"object\": ", message.object);
            self.out.push('}');
        }
        self.int("], \"message_count\": ", sent.count);
        self.int(", \"messages_before\": ", sent.before);
        self.out.push('}');
    }

    /// Begins the object of a record.
    fn head(&mut self, head: &Head, xid: u32, names: (&str, &str)) {
        self.out.push_str("{\"lsn\": \"");
        lsn(self.out, head.lsn);
        self.out.push_str("\", \"end_lsn\": \"");
        lsn(self.out, head.end);
        self.out.push_str("\", \"prev_lsn\": \"");
        lsn(self.out, head.prev);
        self.int("\", \"xid\": ", xid);
        self.names(names);
    }

    fn names(&mut self, (rmgr, kind): (&str, &str)) {
        for part in [", \"rmgr\": \"", rmgr, "\", \"record_type\": \"", kind, "\""] {
            self.out.push_str(part);
        }
    }

    fn block(&mut self, b: &Block) {
        self.int("{\"block_id\": ", b.id);
        self.int(", \"spcnode\": ", b.relation.spc);
        self.int(", \"dbnode\": ", b.relation.db);
        self.int(", \"relfilenode\": ", b.relation.rel);
        self.out.push_str(", \"fork\": ");
        match fork(b) {
            Some(name) => self.text(name),
            None => self.out.push_str("null"),
        }
        self.int(", \"block\": ", b.block);
        self.flag(", \"will_init\": ", b.will_init);
        self.flag(", \"has_image\": ", b.has_image);
        self.int(", \"data_length\": ", b.data_length);
        self.int(", \"fpi_length\": ", b.image_length);
        self.flag(", \"fpi_apply\": ", b.image_info & image_info::APPLY != 0);
        self.out.push_str(", \"fpi_compression\": ");
        self.text(compression(b));
        self.int(", \"hole_offset\": ", b.hole_offset);
        self.int(", \"hole_length\": ", b.hole_length);
        self.out.push('}');
    }

    fn int(&mut self, before: &str, n: impl itoa::Integer) {
        self.out.push_str(before);
        number(self.out, n);
    }

    fn flag(&mut self, before: &str, is_set: bool) {
        self.out.push_str(before);
        self.out.push_str(if is_set { "true" } else { "false" });
    }

    fn time(&mut self, before: &str, time: Option<i64>) {
        self.out.push_str(before);
        match time {
            Some(time) => self.text(&time_text(time)),
            None => self.out.push_str("null"),
        }
    }

    fn fields(&mut self, fields: &[Field]) {
        self.out.push('{');
        for (n, (name, value)) in fields.iter().enumerate() {
            self.out.push_str(if n > 0 { ", " } else { "" });
            self.text(name);
            self.out.push_str(": ");
            self.value(value);
        }
        self.out.push('}');
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Int(n) => number(self.out, *n),
            Value::Bool(is_set) => self.flag("", *is_set),
            Value::Text(text) => self.text(text),
            Value::Fields(fields) => self.fields(fields),
            Value::List(values) => {
                self.out.push('[');
                for (n, value) in values.iter().enumerate() {
                    self.out.push_str(if n > 0 { ", " } else { "" });
                    self.value(value);
                }
                self.out.push(']');
            }
        }
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
            self.out.push_str(text);
        } else {
            text.chars().for_each(|c| self.escaped(c));
        }
        self.out.push('"');
    }

    fn escaped(&mut self, c: char) {
        match c {
            '"' => self.out.push_str("\\\""),
            '\\' => self.out.push_str("\\\\"),
            '\n' => self.out.push_str("\\n"),
            '\r' => self.out.push_str("\\r"),
            '\t' => self.out.push_str("\\t"),
            '\u{8}' => self.out.push_str("\\b"),
            '\u{c}' => self.out.push_str("\\f"),
            c if c < ' ' => self.out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => self.out.push(c),
        }
    }
}
