//! Packets of several files in the order of time.

use std::fs::File;
use std::io::Read;

use super::input::{Patient, Unpacked};
use super::sorted::Sorted;
use super::{FileCounts, PacketReader};
use crate::packet::Packet;
use leadline_errors::{Error, Result};

/// A file or pipe that is open, and its name for messages.
#[derive(Debug)]
#[allow(missing_docs)]
pub struct Source {
    pub name: String,
    pub file: File,
}

enum Way {
    AsItComes(PacketReader<Box<dyn Read + Send>>),
    Sorted(Box<Sorted>, FileCounts),
}

struct One {
    name: String,
    way: Way,
    /// Time of its present packet; none at its end.
    ts: Option<i64>,
    is_new: bool,
}

impl One {
    fn open(source: Source) -> Result<One> {
        let Source { name, file } = source;
        let at = |e: Error| e.at(&name);
        let is_regular = file.metadata().is_ok_and(|of| of.is_file());
        let sorted = if is_regular { Sorted::look(&file).unwrap_or(None) } else { None };
        let way = match sorted {
            Some((sorted, counts)) => Way::Sorted(Box::new(sorted), counts),
            // Of a pipe nothing is read yet: who waits for its first bytes can be stopped by a signal.
            None if !is_regular => Way::AsItComes(PacketReader::unread(Box::new(Unpacked::new(Patient(file))))),
            None => Way::AsItComes(PacketReader::new(Box::new(Unpacked::new(file)) as Box<_>).map_err(at)?),
        };
        Ok(One { name, way, ts: None, is_new: true })
    }

    fn advance(&mut self) -> Result<()> {
        let is_there = match &mut self.way {
            Way::AsItComes(reader) => reader.advance(),
            Way::Sorted(sorted, _) => sorted.advance(),
        };
        let is_there = is_there.map_err(|e| e.at(&self.name))?;
        self.is_new = false;
        self.ts = if is_there { self.packet().map(|packet| packet.ts) } else { None };
        Ok(())
    }

    fn packet(&self) -> Option<Packet<'_>> {
        match &self.way {
            Way::AsItComes(reader) => reader.packet(),
            Way::Sorted(sorted, _) => sorted.packet(),
        }
    }
}

/// Several files.
pub struct Merged {
    files: Vec<One>,
    present: Option<usize>,
}

impl Merged {
    /// Opens them.
    ///
    /// # Errors
    /// One is no file of packets, or cannot be read.
    pub fn open(sources: Vec<Source>) -> Result<Merged> {
        let files = sources.into_iter().map(One::open).collect::<Result<Vec<_>>>()?;
        Ok(Merged { files, present: None })
    }

    /// Goes to the next packet, if there is one. A signal makes an error of kind `gone`; it can be called again then.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn advance(&mut self) -> Result<bool> {
        for (number, one) in self.files.iter_mut().enumerate() {
            if one.is_new || self.present == Some(number) {
                one.advance()?;
            }
        }
        let first = self.files.iter().enumerate().filter_map(|(number, one)| Some((one.ts?, number))).min();
        self.present = first.map(|(_, number)| number);
        Ok(first.is_some())
    }

    /// The present packet.
    pub fn packet(&self) -> Option<Packet<'_>> {
        let number = self.present?;
        let packet = self.files[number].packet()?;
        // Interfaces of different files are different places, if the files say which they are.
        let place = if packet.place == 0 { 0 } else { packet.place.wrapping_add((number as u32) << 16) };
        Some(Packet { place, ..packet })
    }

    /// What else was in the files, together.
    pub fn counts(&self) -> FileCounts {
        let mut all = FileCounts::default();
        for one in &self.files {
            let (counts, sorted) = match &one.way {
                Way::AsItComes(reader) => (reader.counts(), 0),
                Way::Sorted(_, counts) => (counts.clone(), 1),
            };
            all.packets += counts.packets;
            all.bytes += counts.bytes;
            all.skipped_blocks += counts.skipped_blocks;
            all.without_time += counts.without_time;
            all.dropped += counts.dropped;
            all.sorted += sorted;
            all.unknown_link = all.unknown_link.or(counts.unknown_link);
            if let Some(why) = counts.ended_early {
                let named = if self.files.len() > 1 { format!("{}: {why}", one.name) } else { why };
                all.ended_early = Some(all.ended_early.map_or(named.clone(), |before| format!("{before}; {named}")));
            }
        }
        all
    }
}
