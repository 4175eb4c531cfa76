//! A load client that measures: it runs scripts of pgbench on many connections, and says what each transaction took.
//!
//! One thread for each CPU runs the clients that belong to it, over sockets that do not block. With a rate, a transaction is due at a moment,
//! and its latency counts from that moment, whenever it could begin. Nothing is measured by the server: what is here is what an application
//! would see.
//!
//! Owns: scripts, their variables, the exchange with the server, times and counts. Does not own: what is printed or stored.

mod client;
mod dues;
mod eval;
mod input;
mod mix;
pub mod names;
mod own;
mod plan;
mod poll;
pub mod random;
mod results;
mod run;
mod schedule;
pub mod script;
mod steady;
mod tallies;
mod tally;
mod terminals;
pub mod tpcc;
pub mod value;
pub mod variables;
mod worker;

pub use client::Mode;
pub use plan::{Plan, Source};
pub use run::run;
pub use schedule::Phase;
pub use terminals::TerminalPlan;
