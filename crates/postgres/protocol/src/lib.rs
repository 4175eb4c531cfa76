//! PostgreSQL's protocol, version 3.0, from the client's side.
//!
//! Owns: the bytes of messages, and the proofs that a client knows its password. Does not own: sockets, time, and what a client does with
//! an answer. The names of messages are those of PostgreSQL's manual.

#![forbid(unsafe_code)]

pub mod backend;
pub mod frontend;
pub mod md5;
pub mod scram;
