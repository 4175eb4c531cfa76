//! Rows into a file: CSV, text as COPY has it, or Parquet with the types that Parquet has (`columns`).
//!
//! Blocks are decoded by several threads and written in order. What is in memory does not depend on the relation's size: for
//! each thread the file handles, one group of rows that is being made and two that wait.

mod bits;
mod chunk;
mod columns;
mod copy;
mod dictionary;
mod in_order;
mod packed;
mod parquet;
mod part;
mod strings;
mod tids;

use std::fs::File;
use std::io::Seek;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;

use crate::beside::{ctid, Beside, Fact};
use crate::relation::Relation;
use crate::scan::{Row, RowScan};
use crate::value::Text;
use copy::Form;
use in_order::{in_order, Maker, Outlet, Plan, Read};
use leadline_errors::{Error, Kind, Result};

/// The values of the columns beside those of the relation, as text.
pub fn provenance_values(scan: &RowScan, row: &Row) -> Vec<String> {
    let p = row.place;
    let value = |fact: &Fact| match fact {
        Fact::Partition => scan.current().name.clone(),
        Fact::Ctid => {
            let mut text = Text::new();
            ctid(&p, &mut text);
            text.into_string()
        }
        Fact::File => scan.file_of(p.block).display().to_string(),
        Fact::Block => p.block.to_string(),
        Fact::Lp => p.lp.to_string(),
        Fact::Xmin => p.xmin.to_string(),
        Fact::Xmax => p.xmax.to_string(),
        Fact::Status => p.status.as_str().into(),
    };
    scan.beside.facts().iter().map(value).collect()
}

/// What was written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exported {
    /// Rows.
    pub rows: u64,
    /// Columns that are text in the file because some of their values do not fit the type that Parquet has for them.
    pub as_text: Vec<String>,
}

/// Which rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// All, beside them where each is.
    All,
    /// Those that are whole and visible, and nothing beside their columns: to be loaded into a table.
    Sure,
    /// The others: a value is lost, or nothing tells whether the row is visible. Their status is beside them.
    Doubtful,
    /// Versions of rows that no snapshot sees, of a scan that gives them: where they are, their transactions and what became of them.
    Dead,
}

/// Called with blocks done and blocks there are; may end the export.
pub type GoOn<'f> = &'f mut dyn FnMut(u32, u32) -> bool;

/// Writes rows, from the first block on. Into Parquet all of them.
///
/// # Errors
/// When a file cannot be read or written. What was written until then is removed.
pub fn export(scan: &mut RowScan, out: &Path, which: Which, threads: usize, go_on: GoOn<'_>) -> Result<Exported> {
    let kind = out.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    let loads = kind == "copy" && which == Which::Sure;
    if kind != "csv" && kind != "parquet" && !loads {
        return Err(Error::new(Kind::Usage, "the output name must end in .csv or .parquet").at(out));
    }
    if which != Which::All && kind == "parquet" {
        return Err(Error::new(Kind::Usage, "rows cannot be left out of Parquet").at(out));
    }
    // What is there under the name is replaced when all is written, not before.
    let mut partial = out.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let file = part::take(partial)?;
    let mut beside = match which {
        Which::All => scan.beside,
        Which::Sure => Beside::Nothing,
        Which::Doubtful => Beside::Status,
        Which::Dead => Beside::Version,
    };
    let written = loop {
        scan.relation.types.forget_faults();
        let job =
            Job { scan, beside, which, file: &file, out: partial, threads: threads.max(1), needs_status: false.into() };
        let written = match kind.as_str() {
            "csv" => copy::write(&job, Form::Csv, go_on),
            "copy" => copy::write(&job, Form::Text, go_on),
            _ => parquet::write(&job, go_on),
        };
        // The columns of a file are said before its first row: it is begun again.
        if !job.needs_status.into_inner() {
            break written;
        }
        beside = beside.for_status(true);
    };
    scan.beside = beside;
    let written = written.and_then(|(exported, read)| {
        std::fs::rename(partial, out).map_err(|e| writing(out, &e))?;
        scan.unread = read.unread;
        (scan.block, scan.is_done) = (read.end, true);
        Ok(exported)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(partial); // the error that counts is the first
    }
    written
}

/// What is exported, where to, and with how many threads.
struct Job<'s> {
    scan: &'s RowScan,
    beside: Beside,
    which: Which,
    /// There is a row whose status is not known, and no column for it: what was written is not to be used.
    needs_status: AtomicBool,
    file: &'s File,
    out: &'s Path,
    threads: usize,
}

type Written = Result<(Exported, Read)>;

impl Job<'_> {
    /// Reads all that is to be read, partition after partition. `range`: blocks that a thread takes at a time; `make` makes a maker for each
    /// thread, and `take` gets what they make.
    fn read<M: Maker>(
        &self,
        range: u32,
        make: impl Fn(&Arc<Relation>, Outlet<M::Made>) -> Result<M> + Sync,
        mut take: impl FnMut(M::Made) -> Result<()>,
        go_on: GoOn<'_>,
    ) -> Result<Read> {
        let scan = self.scan;
        let (_, blocks) = scan.progress();
        let needs_status = (self.beside != self.beside.for_status(true)).then_some(&self.needs_status);
        let mut all = Read { left: scan.limit, ..Read::default() };
        for (part, relation) in scan.parts().iter().enumerate() {
            if all.left == Some(0) {
                break;
            }
            let (dead, threads, limit, before) = (scan.dead, self.threads, all.left, all.end);
            let plan = Plan { relation, dead, range, threads, filter: scan.filter(part), limit, needs_status };
            let read = in_order(
                &plan,
                |outlet| make(relation, outlet),
                |made, block| {
                    made.map_or(Ok(()), &mut take)?;
                    if go_on(before.saturating_add(block), blocks) {
                        Ok(())
                    } else {
                        Err(self.stopped())
                    }
                },
            )?;
            all.unread.add(&scan.told_of(relation, read.unread));
            (all.end, all.left) = (before.saturating_add(read.end), read.left);
        }
        Ok(all)
    }

    /// The file that rows are written into, with nothing in it.
    fn create(&self) -> Result<File> {
        let empty = || {
            let mut file = self.file.try_clone()?;
            file.rewind()?;
            file.set_len(0).map(|()| file)
        };
        empty().map_err(|e| writing(self.out, &e))
    }

    fn stopped(&self) -> Error {
        Error::new(Kind::Usage, "the export was canceled").at(self.out)
    }
}

/// What the file system said when rows were to be written.
fn writing(path: &Path, source: &std::io::Error) -> Error {
    let full = source.kind() == std::io::ErrorKind::StorageFull;
    let message = if full { "no space left to write the rows" } else { "cannot write the rows" };
    let hint = if full { "free space, or write to another file system with -o" } else { "" };
    Error::new(Kind::Storage, message).detail(source.to_string()).hint(hint).at(path)
}
