//! A command followed with ptrace: the calls of its processes that failed, the facts behind them, and how each process ended.
//!
//! [`run`] starts the command and a process that follows it. A seccomp filter (`filter`) stops only the calls of the table in
//! `calls`; all others run at full speed. `follower` holds the loop, `facts` reads what explains a failure while its process is
//! stopped. The result is JSON (`tree`): what it means is decided by its reader.
//!
//! No rights are needed for one's own processes. x86-64 only: calls of 32-bit programs are not seen, how they end is.

mod calls;
mod deaths;
mod dns;
mod facts;
mod filter;
mod follower;
mod holders;
mod memory;
mod outcome;
mod refused;
mod resolve;
mod run;
mod sockets;
mod speech;
mod state;
mod tracee;
mod tree;

pub use run::run;
