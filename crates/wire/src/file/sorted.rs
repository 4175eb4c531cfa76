//! A file whose packets are not in the order of time: two files one behind the other, or packets of several interfaces as they came.
//!
//! A first look at the headers notes time and place of each packet. Only if they are out of order, they are read again one by one.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::{FileCounts, Found, PacketReader, Step};
use crate::packet::Packet;
use leadline_errors::{Error, Kind, Result};

/// Packets that can be sorted: each takes 16 bytes of memory.
const MOST: usize = 1 << 24;

/// Packets of a file in the order of time.
pub(super) struct Sorted {
    file: File,
    /// Time and offset, sorted.
    order: Vec<(i64, u64)>,
    next: usize,
    /// What the file is, by the offset from where it is that: each section of pcapng has interfaces of its own.
    formats: Vec<(u64, super::Format)>,
    buffer: Vec<u8>,
    found: Option<Found>,
}

impl Sorted {
    /// Looks through a file. None if it is in order, or if it has more packets than can be sorted.
    ///
    /// # Errors
    /// As those of reading it.
    pub(super) fn look(file: &File) -> Result<Option<(Sorted, FileCounts)>> {
        let again = |e: std::io::Error| Error::new(Kind::Storage, format!("the packets cannot be read: {e}"));
        let mut reader = PacketReader::new(Whole { file, at: 0 })?;
        let (mut order, mut formats) = (Vec::new(), vec![(0, reader.format.clone())]);
        let (mut latest, mut is_ordered) = (i64::MIN, true);
        loop {
            let before = reader.counts.bytes;
            let described = reader.format.described();
            if !reader.advance()? {
                break;
            }
            let Some(ts) = reader.found.map(|found| found.ts) else { break };
            match (reader.format.described(), formats.last_mut()) {
                ((section, _), _) if section != described.0 => formats.push((before, reader.format.clone())),
                // Interfaces may be described between packets.
                (now, Some((_, last))) if now != described => *last = reader.format.clone(),
                _ => {}
            }
            is_ordered &= ts >= latest;
            latest = latest.max(ts);
            if order.len() == MOST {
                return Ok(None);
            }
            order.push((ts, reader.counts.bytes - reader.length as u64));
        }
        if is_ordered {
            return Ok(None);
        }
        order.sort_by_key(|(ts, _)| *ts);
        let file = file.try_clone().map_err(again)?;
        Ok(Some((Sorted { file, order, next: 0, formats, buffer: Vec::new(), found: None }, reader.counts())))
    }

    /// Goes to the next packet, if there is one.
    pub(super) fn advance(&mut self) -> Result<bool> {
        let Some((ts, offset)) = self.order.get(self.next).copied() else { return Ok(false) };
        self.next += 1;
        let place = self.formats.partition_point(|(from, _)| *from <= offset).saturating_sub(1);
        let Some((_, format)) = self.formats.get_mut(place) else { return Ok(false) };
        let mut wanted = 4096;
        loop {
            self.buffer.resize(wanted, 0);
            let read = self.file.read_at(&mut self.buffer, offset);
            let read = read.map_err(|e| Error::new(Kind::Storage, format!("the packets cannot be read: {e}")))?;
            match format.step(&self.buffer[..read])? {
                Step::Packet(_, found) => {
                    self.found = Some(Found { ts, ..found });
                    return Ok(true);
                }
                Step::More(more) if more > wanted => wanted = more, // at most what a packet may have
                _ => return Err(Error::new(Kind::Storage, "the file of packets changes while it is read")),
            }
        }
    }

    /// The present packet.
    pub(super) fn packet(&self) -> Option<Packet<'_>> {
        self.found.map(|found| found.packet(&self.buffer))
    }
}

/// A file from its beginning, without moving its own place.
struct Whole<'a> {
    file: &'a File,
    at: u64,
}

impl std::io::Read for Whole<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}
