//! Logs made by hand, for tests: records laid out over pages and segments as a server does.
#![allow(dead_code)]

use std::path::{Path, PathBuf};

pub const SEGMENT: u64 = 1 << 20;
pub const PAGE: u64 = 8192;
pub const MAGIC_18: u16 = 0xD118;

/// Writes records one after the other; bytes from the first segment on.
pub struct Writer {
    pub magic: u16,
    pub tli: u32,
    pub at: u64,
    pub prev: u64,
    pub sysid: u64,
    /// Bytes of a page.
    pub page: u64,
    first: u64,
    pub bytes: Vec<u8>,
}

impl Writer {
    /// A log that begins with segment `number`.
    pub fn new(magic: u16, tli: u32, number: u64) -> Writer {
        let first = number * SEGMENT;
        Writer { magic, tli, at: first, prev: 0, sysid: 7, page: PAGE, first, bytes: Vec::new() }
    }

    /// Adds a record made of what follows its header; gives where it begins.
    pub fn put(&mut self, xid: u32, rmid: u8, info: u8, body: &[u8]) -> u64 {
        self.page_header(0);
        let start = self.at;
        let mut record = Vec::new();
        record.extend(((24 + body.len()) as u32).to_le_bytes());
        record.extend(xid.to_le_bytes());
        record.extend(self.prev.to_le_bytes());
        record.extend([info, rmid, 0, 0]);
        let crc = crc32c::crc32c_append(crc32c::crc32c(body), &record);
        record.extend(crc.to_le_bytes());
        record.extend(body);
        let mut rest = &record[..];
        while !rest.is_empty() {
            self.page_header(if rest.len() == record.len() { 0 } else { rest.len() as u32 });
            let here = rest.len().min((self.page - self.at % self.page) as usize);
            self.bytes.extend(&rest[..here]);
            self.at += here as u64;
            rest = &rest[here..];
        }
        self.pad(self.at.next_multiple_of(8));
        self.prev = start;
        if (rmid, info) == (0, 0x40) {
            self.pad(self.at.next_multiple_of(SEGMENT));
        }
        start
    }

    /// A record with main data only.
    pub fn main(&mut self, xid: u32, rmid: u8, info: u8, data: &[u8]) -> u64 {
        let mut body = match u8::try_from(data.len()) {
            Ok(length) => vec![255, length],
            Err(_) => [vec![254], (data.len() as u32).to_le_bytes().to_vec()].concat(),
        };
        body.extend(data);
        self.put(xid, rmid, info, &body)
    }

    fn page_header(&mut self, rem_len: u32) {
        if !self.at.is_multiple_of(self.page) {
            return;
        }
        let long = self.at.is_multiple_of(SEGMENT);
        let info = u16::from(rem_len > 0) | u16::from(long) << 1;
        self.bytes.extend(self.magic.to_le_bytes());
        self.bytes.extend(info.to_le_bytes());
        self.bytes.extend(self.tli.to_le_bytes());
        self.bytes.extend(self.at.to_le_bytes());
        self.bytes.extend(rem_len.to_le_bytes());
        self.bytes.extend([0; 4]);
        if long {
            self.bytes.extend(self.sysid.to_le_bytes());
            self.bytes.extend((SEGMENT as u32).to_le_bytes());
            self.bytes.extend((self.page as u32).to_le_bytes());
        }
        self.at += if long { 40 } else { 24 };
    }

    fn pad(&mut self, to: u64) {
        self.bytes.resize(self.bytes.len() + (to - self.at) as usize, 0);
        self.at = to;
    }

    /// Writes the segments into a folder, the last one filled up with zeros.
    pub fn store(&self, folder: &Path) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for (n, part) in self.bytes.chunks(SEGMENT as usize).enumerate() {
            let path = folder.join(name(self.tli, self.first / SEGMENT + n as u64));
            let mut whole = part.to_vec();
            whole.resize(SEGMENT as usize, 0);
            std::fs::write(&path, whole).unwrap();
            paths.push(path);
        }
        paths
    }
}

pub fn name(tli: u32, number: u64) -> String {
    let per_high = 0x1_0000_0000 / SEGMENT;
    format!("{tli:08X}{:08X}{:08X}", number / per_high, number % per_high)
}

/// The header of a block reference with data and no image, its data, and main data.
pub fn block_body(spc: u32, db: u32, rel: u32, block: u32, data: &[u8], main: &[u8]) -> Vec<u8> {
    let mut body = vec![0, if data.is_empty() { 0 } else { 0x20 }];
    body.extend((data.len() as u16).to_le_bytes());
    [spc, db, rel, block].iter().for_each(|word| body.extend(word.to_le_bytes()));
    body.extend([255, main.len() as u8]);
    body.extend(data);
    body.extend(main);
    body
}

/// A folder that is removed at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("leadline-wal-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
