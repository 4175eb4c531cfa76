//! The protocol of MySQL and MariaDB: packets with a length of three bytes and a number.
//!
//! Owns: the bytes of packets that a client and whoever listens to it need alike, and the proofs that a client knows its password. Does
//! not own: sockets, time, and the order in which packets come. Names are those of MySQL's manual.

#![forbid(unsafe_code)]

pub mod auth;
pub mod capability;
pub mod command;
mod error;
pub mod field;
mod greeting;
mod login;
pub mod packet;

pub use error::ErrorPacket;
pub use greeting::Greeting;
pub use login::{login, request_tls};
