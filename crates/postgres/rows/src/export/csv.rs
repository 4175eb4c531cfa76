//! Rows as CSV: as the server's own COPY writes it, with a line of names first.

use std::io::Write;
use std::sync::Arc;

use super::in_order::{in_order, Maker, Outlet};
use super::{writing, Exported, GoOn, Job, Written};
use crate::beside::{ctid, Fact};
use crate::cell::{Place, Value};
use crate::decode::RowSink;
use crate::relation::Relation;
use crate::value::number::unsigned;
use crate::value::{Printer, Text};
use leadline_errors::Result;

/// Blocks of a range.
const BLOCKS: u32 = 128;
/// Text that is handed over at a time.
const BYTES: usize = 1 << 20;

pub(super) fn write(job: &Job<'_>, go_on: GoOn<'_>) -> Written {
    let failed = |e: std::io::Error| writing(job.out, &e);
    let mut file = job.create()?;
    let scan = job.scan;
    let mut names = Vec::new();
    let beside = job.beside.names(scan.columns());
    for name in beside.iter().chain(scan.columns().iter().map(|c| &c.name)) {
        field(name.as_bytes(), &mut names);
    }
    end_line(&mut names);
    file.write_all(&names).map_err(failed)?;
    let relation = &scan.relation;
    let printers: Vec<Printer> = relation.columns.iter().map(|c| relation.types.printer(c.oid)).collect();
    let make = |outlet| {
        let (relation, printers, facts) = (Arc::clone(relation), printers.clone(), job.beside.facts());
        Ok(Csv { relation, printers, facts, lines: Lines::new(), value: Text::new(), outlet })
    };
    let plan = job.plan(BLOCKS);
    let mut rows = 0;
    let unread = in_order(&plan, make, |lines: Option<Lines>, block| {
        if let Some(lines) = lines {
            rows += lines.rows;
            file.write_all(&lines.text).map_err(failed)?;
        }
        if go_on(block, relation.heap.blocks) {
            Ok(())
        } else {
            Err(job.stopped())
        }
    })?;
    Ok((Exported { rows, as_text: Vec::new() }, unread))
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

struct Csv {
    relation: Arc<Relation>,
    printers: Vec<Printer>,
    facts: &'static [Fact],
    lines: Lines,
    /// A value, as it is before it is quoted.
    value: Text,
    outlet: Outlet<Lines>,
}

impl RowSink for Csv {
    fn begin(&mut self, place: &Place) {
        let out = &mut self.lines.text;
        for fact in self.facts {
            self.value.clear();
            let _ = match fact {
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
            field(self.value.as_bytes(), out);
        }
    }

    fn value(&mut self, column: usize, value: Value<'_>) {
        let out = &mut self.lines.text;
        match value {
            Value::Null => out.push(b','),
            Value::Lost(text) => field(text.as_bytes(), out),
            Value::Bytes(bytes) => {
                self.value.clear();
                self.relation.types.print(self.printers[column], bytes, &mut self.value);
                field(self.value.as_bytes(), out);
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        end_line(&mut self.lines.text);
        self.lines.rows += 1;
        if self.lines.text.len() >= BYTES {
            self.outlet.put(std::mem::replace(&mut self.lines, Lines::new()))?;
        }
        Ok(())
    }
}

impl Maker for Csv {
    type Made = Lines;

    fn finish(&mut self) -> Result<Option<Lines>> {
        Ok(Some(std::mem::replace(&mut self.lines, Lines::new())).filter(|lines| lines.rows > 0))
    }
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

/// The last comma of a line becomes its end.
fn end_line(line: &mut [u8]) {
    if let Some(last) = line.last_mut() {
        *last = b'\n';
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
