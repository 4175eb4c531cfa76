//! Rows as the server's own COPY writes them: as CSV, with a line of names first, or as text.

use std::io::Write;
use std::sync::Arc;

use super::in_order::{Maker, Outlet};
use super::{writing, Exported, GoOn, Job, Which, Written};
use crate::beside::{ctid, Fact};
use crate::cell::{Place, Value};
use crate::decode::RowSink;
use crate::relation::Relation;
use crate::value::number::unsigned;
use crate::value::{Printer, Text};
use crate::xact::Status;
use leadline_errors::Result;

/// Blocks of a range.
const BLOCKS: u32 = 128;
/// Text that is handed over at a time.
const BYTES: usize = 1 << 20;

/// Of the forms that COPY has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Csv,
    Text,
}

pub(super) fn write(job: &Job<'_>, form: Form, go_on: GoOn<'_>) -> Written {
    let failed = |e: std::io::Error| writing(job.out, &e);
    let mut file = job.create()?;
    let scan = job.scan;
    if form == Form::Csv {
        let mut names = Vec::new();
        let beside = job.beside.names(scan.columns());
        for name in beside.iter().chain(scan.columns().iter().map(|c| &c.name)) {
            field(name.as_bytes(), &mut names);
        }
        end_line(&mut names);
        file.write_all(&names).map_err(failed)?;
    }
    let relation = &scan.relation;
    let printers: Vec<Printer> = relation.columns.iter().map(|c| relation.types.printer(c.oid)).collect();
    let make = |relation: &Arc<Relation>, outlet| {
        let (relation, printers, facts) = (Arc::clone(relation), printers.clone(), job.beside.facts());
        let which = job.which;
        Ok(Copy {
            relation,
            printers,
            facts,
            form,
            which,
            lines: Lines::new(),
            start: 0,
            shown: true,
            doubtful: false,
            value: Text::new(),
            outlet,
        })
    };
    let mut rows = 0;
    let take = |lines: Lines| {
        rows += lines.rows;
        file.write_all(&lines.text).map_err(failed)
    };
    let read = job.read(BLOCKS, make, take, go_on)?;
    Ok((Exported { rows, as_text: Vec::new() }, read))
}

/// Some whole lines.
struct Lines {
    text: Vec<u8>,
    rows: u64,
}

impl Lines {
    fn new() -> Lines {
        Lines { text: Vec::with_capacity(BYTES + (1 << 16)), rows: 0 }
    }
}

struct Copy {
    relation: Arc<Relation>,
    printers: Vec<Printer>,
    facts: &'static [Fact],
    form: Form,
    which: Which,
    lines: Lines,
    /// Where the last line begins.
    start: usize,
    /// A snapshot sees what it is of, or may see it.
    shown: bool,
    /// What it is of is not whole, or nothing tells whether it is visible.
    doubtful: bool,
    /// A value, as it is before it is quoted.
    value: Text,
    outlet: Outlet<Lines>,
}

impl RowSink for Copy {
    fn begin(&mut self, place: &Place) {
        let out = &mut self.lines.text;
        (self.start, self.doubtful) = (out.len(), place.status == Status::Unknown);
        self.shown = place.status.is_shown();
        for fact in self.facts {
            self.value.clear();
            let _ = match fact {
                Fact::Partition => {
                    self.value.push_str(&self.relation.name);
                    Some(())
                }
                Fact::Ctid => {
                    ctid(place, &mut self.value);
                    Some(())
                }
                Fact::File => {
                    self.value.push_str(&self.relation.heap.file_of(place.block).to_string_lossy());
                    Some(())
                }
                Fact::Block => unsigned(place.block.into(), 1, &mut self.value),
                Fact::Lp => unsigned(place.lp.into(), 1, &mut self.value),
                Fact::Xmin => unsigned(place.xmin.into(), 1, &mut self.value),
                Fact::Xmax => unsigned(place.xmax.into(), 1, &mut self.value),
                Fact::Status => {
                    self.value.push_str(place.status.as_str());
                    Some(())
                }
            };
            self.form.field(self.value.as_bytes(), out);
        }
    }

    fn value(&mut self, column: usize, value: Value<'_>) {
        let out = &mut self.lines.text;
        match value {
            Value::Null => self.form.null(out),
            Value::Lost(text) => {
                self.doubtful = true;
                self.form.field(text.as_bytes(), out);
            }
            Value::Bytes(bytes) => {
                self.value.clear();
                self.relation.types.print(self.printers[column], bytes, &mut self.value);
                self.form.field(self.value.as_bytes(), out);
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        let wanted = match self.which {
            Which::All => true,
            Which::Sure => self.shown && !self.doubtful,
            Which::Doubtful => self.shown && self.doubtful,
            Which::Dead => !self.shown,
        };
        if !wanted {
            self.lines.text.truncate(self.start);
            return Ok(());
        }
        end_line(&mut self.lines.text);
        self.lines.rows += 1;
        if self.lines.text.len() >= BYTES {
            self.outlet.put(std::mem::replace(&mut self.lines, Lines::new()))?;
        }
        Ok(())
    }
}

impl Maker for Copy {
    type Made = Lines;

    fn finish(&mut self) -> Result<Option<Lines>> {
        Ok(Some(std::mem::replace(&mut self.lines, Lines::new())).filter(|lines| lines.rows > 0))
    }
}

impl Form {
    /// A value and what separates it from the next.
    fn field(self, bytes: &[u8], out: &mut Vec<u8>) {
        match self {
            Form::Csv => field(bytes, out),
            Form::Text => escaped(bytes, out),
        }
    }

    fn null(self, out: &mut Vec<u8>) {
        out.extend_from_slice(match self {
            Form::Csv => b",",
            Form::Text => b"\\N\t",
        });
    }
}

/// A value and a tab, as text.
fn escaped(bytes: &[u8], out: &mut Vec<u8>) {
    let letter = |b: &u8| match b {
        b'\\' => Some(b'\\'),
        8 => Some(b'b'),
        b'\t' => Some(b't'),
        b'\n' => Some(b'n'),
        11 => Some(b'v'),
        12 => Some(b'f'),
        b'\r' => Some(b'r'),
        _ => None,
    };
    let special = |found, b: &u8| found | matches!(b, b'\\' | 8..=13);
    if bytes.iter().fold(false, special) {
        for b in bytes {
            match letter(b) {
                Some(letter) => out.extend_from_slice(&[b'\\', letter]),
                None => out.push(*b),
            }
        }
    } else {
        out.extend_from_slice(bytes);
    }
    out.push(b'\t');
}

/// A value and a comma. Text without a character is `""`, null is nothing, as in the server's own CSV.
fn field(bytes: &[u8], out: &mut Vec<u8>) {
    // Without a way out on the first hit the compiler looks at many bytes at once.
    let special = |found, b: &u8| found | matches!(b, b'"' | b',' | b'\n' | b'\r');
    if !bytes.is_empty() && !bytes.iter().fold(false, special) {
        out.extend_from_slice(bytes);
    } else {
        let mut before: &[u8] = b"\"";
        for part in bytes.split(|b| *b == b'"') {
            out.extend_from_slice(before);
            out.extend_from_slice(part);
            before = b"\"\"";
        }
        out.push(b'"');
    }
    out.push(b',');
}

/// The last separator of a line becomes its end.
fn end_line(line: &mut [u8]) {
    if let Some(last) = line.last_mut() {
        *last = b'\n';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped() {
        let mut line = Vec::new();
        for text in ["a", "", "\\N", "\\.", "a\tb\nc\r", "\u{8}\u{b}\u{c}", "é\u{7}"] {
            Form::Text.field(text.as_bytes(), &mut line);
        }
        Form::Text.null(&mut line);
        end_line(&mut line);
        assert_eq!(line, "a\t\t\\\\N\t\\\\.\ta\\tb\\nc\\r\t\\b\\v\\f\té\u{7}\t\\N\n".as_bytes());
    }

    #[test]
    fn fields_are_quoted_when_they_have_to_be() {
        let mut line = Vec::new();
        for text in ["a", "", "a,b", "say \"x\"", "\"", "two\nlines", "é"] {
            field(text.as_bytes(), &mut line);
        }
        end_line(&mut line);
        assert_eq!(line, "a,\"\",\"a,b\",\"say \"\"x\"\"\",\"\"\"\",\"two\nlines\",é\n".as_bytes());
    }
}
