//! Checks redo against a log that a server wrote with `wal_consistency_checking=all`: `consistency LOG [--from LSN] [--no-hints]`.
//!
//! Prints a line for each kind of record: records, pages compared, pages begun, pages changed that no record names, differences.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use leadline_redo::consistency::Consistency;
use leadline_redo::Context;
use leadline_wal::rmgr::type_names;
use leadline_wal::{Lsn, Reader, Wal};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut path, mut from, mut hints) = (None, None, true);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--from" => from = arguments.next().and_then(|lsn| lsn.parse::<Lsn>().ok()),
            "--no-hints" => hints = false,
            _ => path = Some(argument),
        }
    }
    let Some(path) = path else {
        eprintln!("usage: consistency LOG [--from LSN] [--no-hints]");
        return ExitCode::from(2);
    };
    match run(Path::new(&path), from, hints) {
        Ok(differences) => ExitCode::from(u8::from(differences > 0)),
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}

fn run(path: &Path, from: Option<Lsn>, hints: bool) -> leadline_wal::Result<u64> {
    let log = Arc::new(Wal::open(path, None, from, None)?);
    let range = log.range(from, None)?;
    let context = Context { major: log.major, block_size: 8192, hint_bits_are_logged: hints };
    let mut check = Consistency::new(context);
    let mut reader = Reader::new(log.clone(), range);
    check.read(&mut reader)?;
    println!(
        "{:<14} {:<24} {:>9} {:>9} {:>8} {:>8} {:>6}",
        "rmgr", "kind", "records", "compared", "begun", "unnamed", "diff"
    );
    let mut differences = 0;
    for (kind, tally) in &check.tallies {
        let (rmgr, name) = type_names(log.major, *kind);
        let (records, compared, begun, unnamed) = (tally.records, tally.compared, tally.begun, tally.unnamed);
        println!("{rmgr:<14} {name:<24} {records:>9} {compared:>9} {begun:>8} {unnamed:>8} {:>6}", tally.differences);
        differences += tally.differences;
    }
    for difference in &check.differences {
        let (rmgr, name) = type_names(log.major, difference.type_id);
        println!("{rmgr} {name}: {difference}");
    }
    println!("{} pages, {differences} differences", check.pages());
    Ok(differences)
}
