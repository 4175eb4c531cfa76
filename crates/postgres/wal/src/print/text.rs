//! Rows as text of at most 80 columns.

use std::collections::HashMap;

use super::write::{grouped, lsn, number};
use super::{compression, fork, Sent};
use crate::describe::{describe, time_text, Field, Message, Value};
use crate::history::Change;
use crate::record::{Block, Record};
use crate::version::image_info;

const WIDTH: usize = 80;
/// Before the first line of a detail, and before those that go on with it.
const INDENTS: [&str; 2] = ["    ", "      "];

/// line: room for one detail before it is broken into lines.
pub(super) struct Row<'a> {
    pub(super) out: &'a mut String,
    pub(super) line: &'a mut String,
}

impl Row<'_> {
    pub(super) fn record(&mut self, record: &Record<'_>, (rmgr, kind): (&str, &str)) {
        let out = &mut *self.out;
        lsn(out, record.start);
        if record.xid != 0 {
            out.push_str("  xid ");
            number(out, record.xid);
        }
        for part in ["  ", rmgr, "/", kind, "  "] {
            out.push_str(part);
        }
        number(out, record.length());
        out.push_str(" bytes\n");
        for b in record.blocks {
            self.short(|out| block(out, b));
        }
        let description = describe(record);
        self.short(|out| fields(out, &description));
    }

    pub(super) fn change(&mut self, change: &Change, (rmgr, kind): (&str, &str)) {
        let out = &mut *self.out;
        lsn(out, change.lsn);
        for part in ["  ", rmgr, "/", kind] {
            out.push_str(part);
        }
        if change.xid != 0 {
            out.push_str("  xid ");
            number(out, change.xid);
            out.push(' ');
            out.push_str(change.outcome.map_or("end not in the WAL", |(outcome, _)| outcome));
        }
        match (change.outcome, change.log_time) {
            (Some((_, ended)), _) => time(out, "  ", ended),
            (None, Some(before)) => time(out, "  ~", before),
            (None, None) => {}
        }
        out.push('\n');
        let line = &mut *self.line;
        match &change.block {
            Some(block) => {
                if block.has_image {
                    line.push_str("image ");
                    number(line, block.image_length);
                    line.push_str(" bytes");
                }
                if block.will_init {
                    and(line, "initialized");
                }
            }
            None => line.push_str("truncated"),
        }
        if !change.description.is_empty() {
            and(line, "");
            fields(line, &change.description);
        }
        self.detail();
    }

    pub(super) fn sent(&mut self, sent: &Sent<'_>, (rmgr, kind): (&str, &str)) {
        let out = &mut *self.out;
        lsn(out, sent.head.lsn);
        for part in ["  ", rmgr, "/", kind] {
            out.push_str(part);
        }
        let xid = sent.ended.map_or(sent.head.xid, |(xid, _)| xid);
        if xid != 0 {
            out.push_str("  xid ");
            number(out, xid);
        }
        if let Some((_, ended)) = sent.ended {
            time(out, "  ", ended);
        }
        if sent.messages.len() < sent.count {
            out.push_str("  messages ");
            grouped(out, sent.before + 1);
            out.push_str(" to ");
            grouped(out, sent.before + sent.messages.len());
            out.push_str(" of ");
            grouped(out, sent.count);
        }
        out.push('\n');
        for (message, times) in counted(sent.messages) {
            and(self.line, message.kind);
            self.line.push(' ');
            number(self.line, message.db);
            self.line.push('/');
            number(self.line, message.object);
            if times > 1 {
                self.line.push_str(" x");
                number(self.line, times);
            }
        }
        self.detail();
    }

    /// Prints a detail that seldom is longer than a line: it is written where it belongs, and moved only to be broken.
    fn short(&mut self, write: impl Fn(&mut String)) {
        let begin = self.out.len();
        self.out.push_str(INDENTS[0]);
        let text = self.out.len();
        write(self.out);
        if text < self.out.len() && self.out.len() <= begin + WIDTH {
            return self.out.push('\n');
        }
        self.line.push_str(&self.out[text..]);
        self.out.truncate(begin);
        self.detail();
    }

    /// Prints the line and empties it.
    fn detail(&mut self) {
        if !self.line.is_empty() {
            wrap(self.out, self.line);
            self.line.clear();
        }
    }
}

/// Each message once, where it is first, with how often it is there.
fn counted(messages: &[Message]) -> Vec<(Message, usize)> {
    let (mut found, mut places) = (Vec::<(Message, usize)>::new(), HashMap::<Message, usize>::new());
    for message in messages {
        match places.get(message) {
            Some(at) => found[*at].1 += 1,
            None => {
                places.insert(*message, found.len());
                found.push((*message, 1));
            }
        }
    }
    found
}

/// Adds a part behind a comma when there is something before it.
fn and(line: &mut String, part: &str) {
    if !line.is_empty() {
        line.push_str(", ");
    }
    line.push_str(part);
}

/// A time without what only programs need.
fn time(out: &mut String, before: &str, unix_us: i64) {
    out.push_str(before);
    out.push_str(&time_text(unix_us).replace('T', " ").replace('Z', ""));
}

fn block(line: &mut String, b: &Block) {
    line.push_str("block ");
    number(line, b.id);
    line.push_str(": ");
    number(line, b.relation.spc);
    line.push('/');
    number(line, b.relation.db);
    line.push('/');
    number(line, b.relation.rel);
    match fork(b) {
        Some("main") => {}
        Some(name) => {
            line.push(' ');
            line.push_str(name);
        }
        None => {
            line.push_str(" fork ");
            number(line, b.fork);
        }
    }
    line.push_str(" page ");
    number(line, b.block);
    if b.has_image {
        line.push_str(", image ");
        number(line, b.image_length);
        line.push_str(" bytes");
        let packed = compression(b);
        if !packed.is_empty() {
            line.push(' ');
            line.push_str(packed);
        }
        if b.image_info & image_info::APPLY == 0 {
            line.push_str(" to verify replay");
        }
    }
    if b.data_length > 0 {
        line.push_str(", data ");
        number(line, b.data_length);
        line.push_str(" bytes");
    }
    if b.will_init {
        line.push_str(", initialized");
    }
}

fn fields(line: &mut String, fields: &[Field]) {
    for (n, (name, of)) in fields.iter().enumerate() {
        line.push_str(if n > 0 { ", " } else { "" });
        line.push_str(name);
        line.push(' ');
        value(line, of);
    }
}

fn value(line: &mut String, of: &Value) {
    match of {
        Value::Int(n) => number(line, *n),
        Value::Bool(is_set) => line.push_str(if *is_set { "true" } else { "false" }),
        Value::Text(text) => one_line(line, text),
        Value::Fields(inner) => {
            line.push('(');
            fields(line, inner);
            line.push(')');
        }
        Value::List(values) => {
            line.push('[');
            for (n, of) in values.iter().enumerate() {
                line.push_str(if n > 0 { ", " } else { "" });
                value(line, of);
            }
            line.push(']');
        }
    }
}

/// Text of the WAL, which may be anything: without line breaks, and with control characters made harmless.
fn one_line(line: &mut String, text: &str) {
    if text.bytes().all(|b| b.is_ascii_graphic()) {
        return line.push_str(text);
    }
    for (n, word) in text.split_whitespace().enumerate() {
        line.push_str(if n > 0 { " " } else { "" });
        line.extend(word.chars().map(|c| if is_control(c) { char::REPLACEMENT_CHARACTER } else { c }));
    }
}

/// Characters that are not seen, and change what is: control characters, and those of Unicode for format and private use.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{AD}' | '\u{600}'..='\u{605}' | '\u{61C}' | '\u{6DD}' | '\u{70F}' | '\u{180E}' | '\u{200B}'..='\u{200F}'
            | '\u{202A}'..='\u{202E}' | '\u{2060}'..='\u{206F}' | '\u{E000}'..='\u{F8FF}' | '\u{FEFF}' | '\u{FFF0}'..='\u{FFFB}'
            | '\u{E0000}'..='\u{10FFFF}')
}

/// Adds a detail in lines of at most 80 columns, broken between words where that can be.
fn wrap(out: &mut String, mut text: &str) {
    for indent in INDENTS.into_iter().chain(std::iter::repeat(INDENTS[1])) {
        let room = WIDTH - indent.len();
        out.push_str(indent);
        if text.len() <= room {
            break;
        }
        let Some((end, _)) = text.char_indices().nth(room) else { break };
        // The blank behind the last word that fits is left out.
        let (line, rest) = match text.as_bytes()[..=end].iter().rposition(|b| *b == b' ') {
            Some(blank) => (&text[..blank], &text[blank + 1..]),
            None => text.split_at(end),
        };
        out.push_str(line);
        out.push('\n');
        text = rest;
    }
    out.push_str(text);
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrapped(text: &str) -> Vec<String> {
        let mut out = String::new();
        wrap(&mut out, text);
        assert!(out.ends_with('\n'));
        out.lines().map(str::to_owned).collect()
    }

    #[test]
    fn lines_break_between_words_and_long_words_anywhere() {
        assert_eq!(wrapped("off 3"), ["    off 3"]);
        let fits = "x".repeat(76);
        assert_eq!(wrapped(&fits), [format!("    {fits}")]);
        assert_eq!(wrapped(&format!("{fits} y")), [format!("    {fits}"), "      y".into()]);
        let long = "ü".repeat(76 + 74 + 1);
        assert_eq!(wrapped(&long).iter().map(|l| l.trim().chars().count()).collect::<Vec<_>>(), [76, 74, 1]);
        let words = "word, ".repeat(60);
        assert!(wrapped(&words).iter().all(|l| l.chars().count() <= WIDTH && l.starts_with("    ")));
        assert_eq!(wrapped(&words).concat().matches("word,").count(), 60);
    }

    #[test]
    fn text_of_the_log_stays_on_its_line() {
        let shown = |text| {
            let mut line = String::new();
            one_line(&mut line, text);
            line
        };
        assert_eq!(shown("plain-name"), "plain-name");
        assert_eq!(shown(" two\n lines\t\u{1b}[31m "), "two lines \u{FFFD}[31m");
        assert_eq!(shown("a\u{202E}b é"), "a\u{FFFD}b é");
    }
}
