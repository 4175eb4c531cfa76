//! Sessions with a PostgreSQL server; its messages are those of `leadline-protocol`.

mod message;
mod session;

pub use session::{ask_for_tls, Login, Phases, Session, SslMode};
