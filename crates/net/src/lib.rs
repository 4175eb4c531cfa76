//! Measuring clients on plain sockets.
//!
//! Owns: the exchange of bytes with a server and the times of it. Does not own: what is printed or stored. All times are
//! nanoseconds on CLOCK_MONOTONIC. A round trip is the whole way, there and back, and is never halved.
//!
//! Bytes from the other end are checked before they are used; nothing they say makes us wait longer, or take more memory, than the
//! caller allowed.

pub mod address;
pub mod channel;
pub mod clock;
pub mod compare;
pub mod dbping;
pub mod delay;
pub mod echo;
pub mod fault;
pub mod fetch;
pub mod first_answer;
pub mod frame;
pub mod icmp;
pub mod link;
pub mod mysql;
mod piece;
pub mod postgres;
pub mod rtt;
pub mod tcp_info;
pub mod throughput;
pub mod tls;
