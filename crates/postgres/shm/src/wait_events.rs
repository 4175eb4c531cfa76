//! Names of wait event codes per major version: data/wait_events.csv.

use crate::layout::Layout;
use crate::memory::Memory;
use std::collections::BTreeMap;

const WAIT_EVENTS_CSV: &str = include_str!("../data/wait_events.csv");

/// Class byte of PGPROC.wait_event_info, wait_event.h.
pub mod class {
    #![allow(missing_docs)]
    pub const LWLOCK: u32 = 0x01;
    pub const LOCK: u32 = 0x03;
    pub const BUFFER_PIN: u32 = 0x04;
    pub const ACTIVITY: u32 = 0x05;
    pub const CLIENT: u32 = 0x06;
}

/// Code to (class, event) of one major version.
#[derive(Debug, Clone)]
pub struct WaitEvents {
    names: BTreeMap<u32, (String, String)>,
    first_user_tranche: u32,
}

impl WaitEvents {
    /// The built-in events of a major; `first_user_tranche`: LWLock tranches from here on belong to extensions.
    pub fn of(major: u32, first_user_tranche: u32) -> Self {
        let mut lines = WAIT_EVENTS_CSV.lines().filter(|l| !l.starts_with('#'));
        let column = lines.next().and_then(|head| head.split(',').position(|c| c == major.to_string()));
        let mut names = BTreeMap::new();
        for line in lines {
            let cells: Vec<&str> = line.split(',').collect();
            let code = column.and_then(|c| cells.get(c)).and_then(|hex| u32::from_str_radix(hex, 16).ok());
            if let Some(code) = code {
                names.insert(code, (cells[0].to_owned(), cells[1].to_owned()));
            }
        }
        WaitEvents { names, first_user_tranche }
    }

    /// Adds the tranches extensions registered at server start: `NamedLWLockTrancheArray` of {int id, char *name}.
    pub fn add_named_tranches(&mut self, mem: &impl Memory, layout: &Layout, array: u64, count: u32) {
        for i in 0..count.min(256) as u64 {
            let entry = array.wrapping_add(i * layout.tranche_size);
            let (Ok(id), Ok(name_at)) = (mem.u32(entry + layout.tranche_id), mem.u64(entry + layout.tranche_name))
            else {
                return;
            };
            let mut name = Vec::new();
            if id < self.first_user_tranche || id > 0xffff || mem.c_string(name_at, 64, &mut name).is_err() {
                continue;
            }
            if let Ok(name) = String::from_utf8(name) {
                self.names.insert(class::LWLOCK << 24 | id, ("LWLock".into(), name));
            }
        }
    }

    /// Class and event of a code. Unknown codes keep their number.
    pub fn name(&self, code: u32) -> (String, String) {
        if let Some(found) = self.names.get(&code) {
            return found.clone();
        }
        let class = match code >> 24 {
            0x01 => "LWLock",
            0x03 => "Lock",
            0x04 => "BufferPin",
            0x05 => "Activity",
            0x06 => "Client",
            0x07 => "Extension",
            0x08 => "IPC",
            0x09 => "Timeout",
            0x0a => "IO",
            0x0b => "InjectionPoint",
            _ => "unknown",
        };
        // what the server shows for a tranche it has no name for in this process
        if class == "LWLock" && (code & 0xffff) >= self.first_user_tranche {
            return (class.into(), "extension".into());
        }
        (class.into(), format!("unknown:{code:#010x}"))
    }

    /// All known codes with class and event.
    pub fn all(&self) -> impl Iterator<Item = (u32, &str, &str)> {
        self.names.iter().map(|(&code, (class, event))| (code, class.as_str(), event.as_str()))
    }

    /// Code of a class and event; None when the version has no such event.
    pub fn code(&self, class: &str, event: &str) -> Option<u32> {
        self.names.iter().find(|(_, n)| n.0 == class && n.1 == event).map(|(&code, _)| code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{Layout, MAJORS};

    #[test]
    fn the_content_lock_tranche_of_the_layout_is_the_one_of_the_names() {
        for major in MAJORS.filter(|&m| m >= 13) {
            let layout = Layout::of(major).unwrap();
            let events = WaitEvents::of(major, layout.tranche_first_user);
            assert_eq!(
                events.code("LWLock", "BufferContent"),
                Some(class::LWLOCK << 24 | layout.tranche_buffer_content),
                "{major}"
            );
            assert_eq!(events.name(0x0600_0000), ("Client".into(), "ClientRead".into()));
            assert_eq!(events.name(0x0300_0005), ("Lock".into(), "transactionid".into()));
        }
    }

    #[test]
    fn unknown_codes_keep_their_number() {
        let events = WaitEvents::of(15, 75);
        assert_eq!(events.name(0x0a00_03ff), ("IO".into(), "unknown:0x0a0003ff".into()));
        assert_eq!(events.name(0x0100_0060), ("LWLock".into(), "extension".into()));
        assert_eq!(events.name(0xff00_0000).0, "unknown");
    }
}
