//! What must hold for every decoder, whatever the bytes: one function for each, which panics when it does not.
//!
//! The same functions are run by `cargo test` over a fixed number of inputs (`tests/short.rs`) and by libFuzzer without end
//! (`fuzz/` of the repository, `make fuzz`). Each gives a word for how far the bytes came, so that a test can see that its
//! inputs reach what they are meant to reach.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod backups;
mod conditions;
mod cursor;
mod data_dir;
mod elf;
mod folder;
// The records of the log's own tests are laid out by the same code.
#[allow(missing_docs, unreachable_pub)]
#[path = "../../postgres/wal/tests/made/mod.rs"]
mod made;
mod packets;
mod page;
mod page_seeds;
mod page_values;
mod pending;
mod redo;
mod rows;
mod rows_parquet;
pub mod seeds;
mod sql;
mod types;
mod wal;
// Files of packets, too.
#[allow(missing_docs, unreachable_pub, dead_code)]
#[path = "../../wire/tests/made/mod.rs"]
mod wire_made;
mod wire_seeds;

pub use backups::{manifest, tar};
pub use conditions::conditions;
pub use cursor::cursor;
pub use elf::elf;
pub use packets::{conversation, packets};
pub use page::{clog, control, informix, oracle, page, relmap};
pub use page_values::page_values;
pub use pending::pending;
pub use redo::redo;
pub use rows::{rows, tuple, value};
pub use rows_parquet::rows_parquet;
pub use sql::statement;
pub use wal::{wal_image, wal_record, wal_segment};

/// A decoder under test: takes any bytes, and says how far they came.
pub type Target = fn(&[u8]) -> &'static str;

/// Every target by its name in `fuzz/fuzz_targets`.
pub const TARGETS: [(&str, Target); 24] = [
    ("cursor", cursor),
    ("page", page),
    ("oracle", oracle),
    ("control", control),
    ("wal_segment", wal_segment),
    ("wal_record", wal_record),
    ("wal_image", wal_image),
    ("statement", statement),
    ("informix", informix),
    ("value", value),
    ("tuple", tuple),
    ("rows", rows),
    ("page_values", page_values),
    ("rows_parquet", rows_parquet),
    ("pending", pending),
    ("redo", redo),
    ("elf", elf),
    ("relmap", relmap),
    ("clog", clog),
    ("packets", packets),
    ("conversation", conversation),
    ("tar", tar),
    ("manifest", manifest),
    ("conditions", conditions),
];

/// The input's first byte as a choice, and what follows it; 0 when there is none.
fn choice(data: &[u8]) -> (usize, &[u8]) {
    data.split_first().map_or((0, data), |(first, rest)| ((*first).into(), rest))
}

/// The first two bytes as a number.
fn number(data: &[u8]) -> (usize, &[u8]) {
    let (low, rest) = choice(data);
    let (high, rest) = choice(rest);
    (high << 8 | low, rest)
}
