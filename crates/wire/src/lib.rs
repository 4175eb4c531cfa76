//! Packets: from files or from an interface to connections, round trips, and what database protocols say in them.
//!
//! [`mod@file`] reads pcap and pcapng, [`live`] an AF_PACKET ring. [`filter`] says which are wanted, [`headers`] leads down to TCP,
//! [`fragments`] puts packets together, [`stream`] puts the data of a
//! direction in order, [`talk`] finds round trips and reads messages, [`connection`] joins these, [`analyser`] keeps all connections and
//! [`tables`] writes them.
//!
//! Payload is looked at and forgotten. No text of a statement, no value and no password is kept beyond its message or leaves the crate.

pub mod analyser;
pub mod connection;
mod copies;
pub mod durations;
pub mod file;
pub mod filter;
pub mod fragments;
pub mod headers;
pub mod live;
pub mod packet;
pub mod read;
pub mod sizes;
pub mod stream;
pub mod tables;
pub mod talk;
mod tunnel;
mod waits;

pub use analyser::{Analyser, Options};
pub use read::{read_files, Go};
