//! What the server's binary tells without debug symbols: exported variables, version, writable range.

use leadline_errors::{Error, Kind, Result};
use object::elf::{FileHeader64, EM_X86_64, ET_DYN, PF_W, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::Endianness;
use std::collections::HashMap;
use std::fs;

/// Symbols of longer names are none that are looked for.
const LONGEST_NAME: usize = 255;

/// A parsed `postgres` binary. Addresses are link-time; add where the process has it mapped for run-time ones.
#[derive(Debug)]
pub struct Binary {
    bytes: Vec<u8>,
    symbols: HashMap<String, (u64, u64)>,
    /// Position independent: loaded at a random base.
    pub pie: bool,
    /// Lowest link-time address of a loaded segment.
    pub lowest: u64,
    /// Writable segments: (link-time address, size in memory).
    pub writable: Vec<(u64, u64)>,
}

fn damaged(e: object::read::Error) -> Error {
    Error::new(Kind::Unsupported, "the server's binary is not a readable ELF file").detail(e.to_string())
}

impl Binary {
    /// Reads the binary of a process through /proc/PID/exe, which works in containers and after an upgrade replaced the file.
    pub fn of_process(pid: i32) -> Result<Self> {
        let bytes = fs::read(format!("/proc/{pid}/exe")).map_err(|e| match e.kind() {
            std::io::ErrorKind::PermissionDenied => {
                crate::process::no_rights(pid, "the server's binary (/proc/PID/exe)")
            }
            _ => Error::new(Kind::NotFound, format!("no process with pid {pid}")).detail(e.to_string()),
        })?;
        Self::parse(bytes)
    }

    /// Parses the bytes of an x86-64 ELF file.
    pub fn parse(bytes: Vec<u8>) -> Result<Self> {
        let data = bytes.as_slice();
        let header = FileHeader64::<Endianness>::parse(data).map_err(damaged)?;
        let endian = header.endian().map_err(damaged)?;
        if header.e_machine(endian) != EM_X86_64 {
            return Err(Error::new(Kind::Unsupported, "the server is not an x86-64 program")
                .detail(format!("ELF machine {}", header.e_machine(endian)))
                .hint("leadline knows the memory layout for x86-64 only; give a DSN to sample over SQL instead"));
        }
        let (mut lowest, mut writable) = (u64::MAX, Vec::new());
        for segment in header.program_headers(endian, data).map_err(damaged)? {
            if segment.p_type(endian) != PT_LOAD {
                continue;
            }
            lowest = lowest.min(segment.p_vaddr(endian));
            if segment.p_flags(endian) & PF_W != 0 {
                writable.push((segment.p_vaddr(endian), segment.p_memsz(endian)));
            }
        }
        let mut symbols = HashMap::new();
        let sections = header.sections(endian, data).map_err(damaged)?;
        for kind in [object::elf::SHT_SYMTAB, object::elf::SHT_DYNSYM] {
            let table = sections.symbols(endian, data, kind).map_err(damaged)?;
            for symbol in table.iter() {
                // local duplicates of a name lose to the exported one, which comes last
                if symbol.st_shndx(endian) != 0 && symbol.st_value(endian) != 0 {
                    let name = table.symbol_name(endian, symbol).unwrap_or_default();
                    // Names are short; in a damaged file every symbol may be called all of its text.
                    if name.len() <= LONGEST_NAME {
                        if let Ok(name) = std::str::from_utf8(name) {
                            symbols.insert(name.to_owned(), (symbol.st_value(endian), symbol.st_size(endian)));
                        }
                    }
                }
            }
        }
        let pie = header.e_type(endian) == ET_DYN;
        Ok(Binary { symbols, pie, lowest, writable, bytes })
    }

    /// Link-time address of a symbol.
    pub fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).map(|s| s.0)
    }

    /// The code of a function, at most `max` bytes: (link-time address, bytes).
    pub fn code(&self, name: &str, max: usize) -> Option<(u64, &[u8])> {
        let &(address, size) = self.symbols.get(name)?;
        let header = FileHeader64::<Endianness>::parse(self.bytes.as_slice()).ok()?;
        let endian = header.endian().ok()?;
        let len = if size == 0 { max } else { (size as usize).min(max) };
        for segment in header.program_headers(endian, self.bytes.as_slice()).ok()? {
            let (from, filesz) = (segment.p_vaddr(endian), segment.p_filesz(endian));
            if segment.p_type(endian) == PT_LOAD && address >= from && address - from < filesz {
                let at = usize::try_from(segment.p_offset(endian).checked_add(address - from)?).ok()?;
                return Some((address, self.bytes.get(at..at.saturating_add(len).min(self.bytes.len()))?));
            }
        }
        None
    }

    /// The version text compiled into the server: "PostgreSQL 15.18 (Debian ...) on x86_64-pc-linux-gnu, compiled by ...".
    pub fn version_text(&self) -> Option<String> {
        let needle = b"PostgreSQL ";
        let mut at = 0;
        while let Some(found) = memchr::memmem::find(&self.bytes[at..], needle) {
            let start = at + found;
            let tail = &self.bytes[start..self.bytes.len().min(start + 200)];
            let end = tail.iter().position(|&b| b == 0).unwrap_or(tail.len());
            if let Ok(text) = std::str::from_utf8(&tail[..end]) {
                if text.contains(" on ") && text[needle.len()..].starts_with(|c: char| c.is_ascii_digit()) {
                    return Some(text.to_owned());
                }
            }
            at = start + needle.len();
        }
        None
    }
}

/// (major, server_version_num) of a version text: "PostgreSQL 15.18 ..." gives (15, 150018); a beta or development build
/// has no minor number and gives (19, 190000).
pub fn parse_version(text: &str) -> Option<(u32, u32)> {
    let word = text.strip_prefix("PostgreSQL ")?.split([' ', '(']).next()?;
    let digits = word.find(|c: char| !c.is_ascii_digit()).unwrap_or(word.len());
    let major: u32 = word[..digits].parse().ok()?;
    let minor: u32 = word[digits..].strip_prefix('.').and_then(|m| m.parse().ok()).unwrap_or(0);
    Some((major, major.checked_mul(10000)?.checked_add(minor)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_parse() {
        assert_eq!(
            parse_version("PostgreSQL 15.18 (Debian 15.18-0+deb12u1) on x86_64-pc-linux-gnu"),
            Some((15, 150018))
        );
        assert_eq!(parse_version("PostgreSQL 19beta1 on x86_64"), Some((19, 190000)));
        assert_eq!(parse_version("PostgreSQL devel"), None);
        assert_eq!(parse_version("MySQL 8"), None);
    }

    #[test]
    fn bytes_that_are_no_elf_are_refused() {
        for bytes in [vec![], b"#!/bin/sh\n".to_vec(), vec![0x7f; 4096]] {
            assert_eq!(Binary::parse(bytes).unwrap_err().kind, Kind::Unsupported);
        }
    }
}
