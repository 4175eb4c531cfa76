//! The facts of a PostgreSQL data directory, each once: which files it has, what their names mean, what its control file says,
//! and how well it is.
//!
//! [`Condition::of`] says whether the files can be trusted (a running server, a crash, a backup that was not restored, a damaged
//! control file). [`DataDir`] finds the files of databases and relations. What the bytes of pages and of the control file mean
//! is `leadline-page`'s business; this crate reads files and decides nothing about their contents.
//!
//! ```
//! use leadline_datadir::FileName;
//! let name = FileName::parse("16384_vm.2").unwrap();
//! assert_eq!((name.filenode, name.fork.as_str(), name.segment), (16384, "vm", 2));
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod condition;
mod control;
mod copied;
mod dir;
mod ids;
mod majors;
mod name;
mod postmaster;
mod space;
mod tar;

pub use condition::{Condition, Remark, Server};
pub use control::{above, read_bytes, read_control, root_above, ControlBytes};
pub use copied::{Doubt, Original};
pub use dir::{refuse_pg_probackup, DataDir, Transactions, DATA_FILE};
pub use ids::{BlockId, RelFile};
pub use leadline_page::postgres::{is_block_size, is_log_block_size, BLOCK_SIZES, LARGEST_BLOCK_SIZE};
pub use leadline_page::Lsn;
pub use majors::{major_of_catalog, majors_of_control, read_version, MAJORS};
pub use name::{of_path, segment_path, FileName, DEFAULT_BLOCK_SIZE, DEFAULT_SEGMENT_BLOCKS, SEGMENT_BYTES};
pub use postmaster::{find_server, PidFile};
pub use space::{database_folder, own_version, DEFAULT_TABLESPACE, GLOBAL_TABLESPACE};
pub use tar::is_in_tar;
