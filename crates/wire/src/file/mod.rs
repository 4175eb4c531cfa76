//! Files of packets: pcap and pcapng, read from the beginning to the end through one buffer.

mod input;
mod merged;
mod pcap;
mod pcapng;
mod sorted;

use crate::packet::{Link, Packet};
use input::{interrupted, unreadable};
use leadline_errors::{Error, Kind, Result};
pub use merged::{Merged, Source};
use pcap::Pcap;
use pcapng::PcapNg;
use std::io::Read;

/// A packet or block beyond this is damage; the kernel makes packets of at most 512 kB.
const MOST: usize = 1 << 20;
/// Bytes read at once.
const PIECE: usize = 1 << 18;

/// What else was in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileCounts {
    /// Packets.
    pub packets: u64,
    /// Bytes of the file that were read.
    pub bytes: u64,
    /// Blocks of a kind that is not read.
    pub skipped_blocks: u64,
    /// Packets without a time of their own; they take that of the packet before.
    pub without_time: u64,
    /// Files whose packets were put in the order of time.
    pub sorted: u64,
    /// A link type that is not read.
    pub unknown_link: Option<u32>,
    /// Packets lost while the file was written, as the file says.
    pub dropped: u64,
    /// Why the file ends before its end: damage, or a last packet that is not whole.
    pub ended_early: Option<String>,
}

/// Where a packet lies in the bytes that were looked at.
#[derive(Debug, Clone, Copy)]
struct Found {
    ts: i64,
    wire_len: u32,
    link: Link,
    place: u32,
    from: usize,
    to: usize,
}

impl Found {
    fn packet(self, bytes: &[u8]) -> Packet<'_> {
        let data = bytes.get(self.from..self.to).unwrap_or(&[]);
        Packet { ts: self.ts, wire_len: self.wire_len, link: self.link, place: self.place, data }
    }
}

/// What the bytes at the present place are.
enum Step {
    /// So many bytes are a packet.
    Packet(usize, Found),
    /// So many bytes are something else.
    Skip(usize),
    /// So many bytes are needed to tell.
    More(usize),
}

#[derive(Clone)]
enum Format {
    NotYetRead,
    Pcap(Pcap),
    PcapNg(PcapNg),
}

impl Format {
    fn step(&mut self, bytes: &[u8]) -> Result<Step> {
        match self {
            Format::NotYetRead => Ok(Step::More(pcap::HEADER)),
            Format::Pcap(format) => format.step(bytes),
            Format::PcapNg(format) => format.step(bytes),
        }
    }

    /// Sections that have begun, each with interfaces of its own, and the interfaces of the present one.
    fn described(&self) -> (u64, usize) {
        match self {
            Format::NotYetRead => (0, 0),
            Format::Pcap(_) => (1, 1),
            Format::PcapNg(format) => (format.sections, format.interfaces.len()),
        }
    }
}

/// Packets of a file in its order.
pub struct PacketReader<R> {
    input: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    at_end: bool,
    format: Format,
    counts: FileCounts,
    done: bool,
    /// The present packet, and the bytes of it and what the format puts around it.
    found: Option<Found>,
    length: usize,
}

impl<R: Read> PacketReader<R> {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    /// It is no file of packets, or cannot be read.
    pub fn new(input: R) -> Result<PacketReader<R>> {
        let mut reader = PacketReader::unread(input);
        reader.begin()?;
        Ok(reader)
    }

    /// Reads nothing before [`PacketReader::advance`], whose errors are then also those of [`PacketReader::new`].
    fn unread(input: R) -> PacketReader<R> {
        PacketReader {
            input,
            buffer: vec![0; PIECE],
            start: 0,
            end: 0,
            at_end: false,
            format: Format::NotYetRead,
            counts: FileCounts::default(),
            done: false,
            found: None,
            length: 0,
        }
    }

    /// Goes on where it was when a signal ended it.
    fn begin(&mut self) -> Result<()> {
        while self.end < pcap::HEADER && !self.at_end {
            self.at_end = fill(&mut self.input, &mut self.buffer, &mut self.end)?;
        }
        let head = &self.buffer[..self.end];
        if let Some(found) = Pcap::begin(head)? {
            self.format = Format::Pcap(found);
            self.pass(pcap::HEADER);
        } else if PcapNg::begins(head) {
            self.format = Format::PcapNg(PcapNg::default());
        } else {
            return Err(Error::new(Kind::Invalid, "this is not a file of packets")
                .detail("it begins like neither pcap nor pcapng"));
        }
        Ok(())
    }

    /// What was in the file besides packets, as far as it was read.
    pub fn counts(&self) -> FileCounts {
        let mut counts = self.counts.clone();
        if let Format::PcapNg(format) = &self.format {
            counts.dropped = format.dropped();
            counts.without_time = format.without_time;
            counts.unknown_link = format.unknown_link;
        }
        counts
    }

    /// The next packet; none at the end.
    ///
    /// # Errors
    /// As those of [`PacketReader::advance`].
    pub fn next_packet(&mut self) -> Result<Option<Packet<'_>>> {
        self.advance()?;
        Ok(self.packet())
    }

    /// The present packet.
    pub fn packet(&self) -> Option<Packet<'_>> {
        self.found.map(|found| found.packet(&self.buffer))
    }

    /// Goes to the next packet, if there is one. Damage behind the first packets ends the file early, which [`FileCounts`] tells.
    ///
    /// # Errors
    /// The link type of every packet is unknown, the file cannot be read, or (kind `gone`) a signal came: go on by calling again.
    pub fn advance(&mut self) -> Result<bool> {
        self.found = None;
        if matches!(self.format, Format::NotYetRead) {
            self.begin()?;
        }
        while !self.done {
            match self.step() {
                Ok(Some(found)) => {
                    self.found = Some(found);
                    return Ok(true);
                }
                Ok(None) => {}
                Err(e) if e.kind == Kind::Invalid => {
                    self.done = true;
                    if self.counts.packets == 0 {
                        return Err(e.detail(format!("at offset {} of the file", self.counts.bytes)));
                    }
                    self.counts.ended_early = Some(format!("damaged at offset {}: {}", self.counts.bytes, e.message));
                }
                Err(e) => return Err(e),
            }
        }
        match &self.format {
            Format::PcapNg(format) if format.unknown == self.counts.packets => {
                format.unknown_link.map_or(Ok(false), |number| Err(unknown_link(number)))
            }
            _ => Ok(false),
        }
    }

    /// A packet, or something else that was passed over.
    fn step(&mut self) -> Result<Option<Found>> {
        let bytes = &self.buffer[self.start..self.end];
        match self.format.step(bytes)? {
            Step::Packet(length, found) => {
                let base = self.start;
                self.pass(length);
                self.length = length;
                self.counts.packets += 1;
                return Ok(Some(Found { from: base + found.from, to: base + found.to, ..found }));
            }
            Step::Skip(length) => {
                self.counts.skipped_blocks += u64::from(matches!(&self.format, Format::PcapNg(f) if f.skipped));
                self.pass(length);
            }
            Step::More(wanted) if !self.at_end => self.more(wanted)?,
            Step::More(_) => {
                let left = self.end - self.start;
                self.done = true;
                if left > 0 {
                    let (at, why) = (self.counts.bytes, "the last packet is not whole");
                    self.counts.ended_early = Some(format!("{why}: {left} bytes are left at offset {at}"));
                }
            }
        }
        Ok(None)
    }

    fn pass(&mut self, length: usize) {
        self.start += length;
        self.counts.bytes += length as u64;
    }

    fn more(&mut self, wanted: usize) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0); // at most MOST and the headers
        }
        self.at_end = fill(&mut self.input, &mut self.buffer, &mut self.end)?;
        Ok(())
    }
}

/// Whether the input is at its end.
fn fill(input: &mut impl Read, buffer: &mut [u8], end: &mut usize) -> Result<bool> {
    match input.read(&mut buffer[*end..]) {
        Ok(read) => {
            *end += read;
            Ok(read == 0)
        }
        Err(e) if e.kind() == std::io::ErrorKind::Interrupted => Err(interrupted()),
        Err(e) => Err(unreadable(&e)),
    }
}

fn invalid(message: String) -> Error {
    Error::new(Kind::Invalid, message)
}

fn unknown_link(number: u32) -> Error {
    Error::new(Kind::Unsupported, format!("packets of link type {number} are not read"))
        .detail(format!("known are {}", Link::KNOWN))
        .hint("capture on the interface itself, such as tcpdump -i eth0 -w FILE")
}
