//! Where functions begin, by the unwind tables of a file: for those that have no names.

use std::collections::BTreeMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection as _};

/// Begin and end of each function, by begin.
#[derive(Debug, Default)]
pub struct Starts(BTreeMap<u64, u64>);

impl Starts {
    /// Of the section .eh_frame, which is at this address. What is damaged has fewer functions.
    pub fn read(address: u64, eh_frame: &[u8]) -> Starts {
        let (bases, section) = (BaseAddresses::default().set_eh_frame(address), EhFrame::new(eh_frame, LittleEndian));
        let mut entries = section.entries(&bases);
        let mut found = Starts::default();
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(entry) = entry else { continue };
            if let Ok(function) = entry.parse(EhFrame::cie_from_offset) {
                found.0.insert(function.initial_address(), function.end_address());
            }
        }
        found
    }

    /// Where the function of an address begins; None when it is in none.
    pub fn of(&self, address: u64) -> Option<u64> {
        let (start, end) = self.0.range(..=address).next_back()?;
        (address < *end).then_some(*start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::{Object as _, ObjectSection as _, ObjectSymbol as _, SymbolKind};

    /// Of this very program: as its symbols say.
    #[test]
    fn functions_begin_where_their_symbols_do() {
        let bytes = std::fs::read("/proc/self/exe").expect("readable");
        let elf = object::File::parse(&*bytes).expect("a program");
        let section = elf.section_by_name(".eh_frame").expect("there");
        let starts = Starts::read(section.address(), section.data().expect("whole"));
        let functions = elf.symbols().filter(|s| s.kind() == SymbolKind::Text && s.size() > 8).collect::<Vec<_>>();
        let right = functions.iter().filter(|s| starts.of(s.address() + s.size() - 1) == Some(s.address())).count();
        assert!(right * 10 > functions.len() * 9, "{right} of {}", functions.len());
        assert_eq!(starts.of(0), None);
    }

    #[test]
    fn damaged_tables_have_fewer_functions() {
        for byte in 0..=255u8 {
            Starts::read(0x1000, &[byte; 100]);
        }
        assert_eq!(Starts::read(0, &[]).of(0), None);
    }
}
