//! Packets of an interface: a ring that the kernel fills, and the probe that empties it.

mod filter;
mod ring;
mod sniffer;

pub use ring::{Ring, Wanted};
pub use sniffer::{Live, Sniffer};
