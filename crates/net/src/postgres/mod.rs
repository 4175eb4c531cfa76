//! PostgreSQL's protocol, version 3.0, as a client: no more of it than is to be measured.

mod md5;
mod message;
mod scram;
mod session;

pub use session::{ask_for_tls, Login, Phases, Session, SslMode};
