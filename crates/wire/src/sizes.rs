//! Sizes of packets by direction, for an interval or for all of a capture.

/// Which way packets go.
pub const WAYS: [&str; 3] = ["to server", "to client", "other"];

/// Sizes of packets of one direction. Sizes are on the wire, with the header of the link.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[allow(missing_docs)]
pub struct Sizes {
    pub packets: u64,
    pub wire_bytes: u64,
    pub payload_bytes: u64,
    pub least: u32,
    pub most: u32,
    squares: f64,
}

impl Sizes {
    /// One packet.
    pub fn add(&mut self, wire: u32, payload: u32) {
        self.least = if self.packets == 0 { wire } else { self.least.min(wire) };
        self.most = self.most.max(wire);
        self.packets += 1;
        self.wire_bytes += u64::from(wire);
        self.payload_bytes += u64::from(payload);
        self.squares += f64::from(wire) * f64::from(wire);
    }

    /// Mean size in bytes; none without packets.
    pub fn mean(&self) -> Option<f64> {
        (self.packets > 0).then(|| self.wire_bytes as f64 / self.packets as f64)
    }

    /// Standard deviation of the sizes, of all packets rather than of a sample of them.
    pub fn deviation(&self) -> Option<f64> {
        let mean = self.mean()?;
        Some((self.squares / self.packets as f64 - mean * mean).max(0.0).sqrt())
    }

    /// With those of another interval.
    pub fn join(&mut self, more: &Sizes) {
        if more.packets == 0 {
            return;
        }
        self.least = if self.packets == 0 { more.least } else { self.least.min(more.least) };
        self.most = self.most.max(more.most);
        self.packets += more.packets;
        self.wire_bytes += more.wire_bytes;
        self.payload_bytes += more.payload_bytes;
        self.squares += more.squares;
    }
}
