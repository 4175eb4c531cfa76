//! Names of the kernel's functions.

/// The functions of the running kernel by address.
#[derive(Debug, Default)]
pub struct KernelSymbols {
    /// Ascending: address, where the name begins in `names`, its length.
    functions: Vec<(u64, u32, u16)>,
    names: String,
}

impl KernelSymbols {
    /// Reads /proc/kallsyms. Empty where it may not be read: then all addresses there are 0.
    pub fn read() -> KernelSymbols {
        std::fs::read_to_string("/proc/kallsyms")
            .map_or_else(|_| KernelSymbols::default(), |text| KernelSymbols::parse(&text))
    }

    fn parse(text: &str) -> KernelSymbols {
        let mut found = KernelSymbols::default();
        for line in text.lines() {
            let mut parts = line.split_ascii_whitespace();
            let (Some(address), Some(kind), Some(name)) = (parts.next(), parts.next(), parts.next()) else { continue };
            let Ok(address) = u64::from_str_radix(address, 16) else { continue };
            if address == 0 || !matches!(kind, "t" | "T" | "w" | "W") {
                continue;
            }
            found.functions.push((address, found.names.len() as u32, name.len().min(usize::from(u16::MAX)) as u16));
            found.names.push_str(name);
        }
        found.functions.sort_unstable_by_key(|f| f.0);
        found
    }

    /// Where a function begins; None when there is none of this name.
    pub fn address(&self, name: &str) -> Option<u64> {
        let of = |at: u32, len: u16| self.names.get(at as usize..at as usize + usize::from(len));
        self.functions.iter().find(|&&(_, at, len)| of(at, len) == Some(name)).map(|f| f.0)
    }

    /// The function that an address is in; None when no function begins before it.
    pub fn name(&self, address: u64) -> Option<&str> {
        let after = self.functions.partition_point(|f| f.0 <= address);
        let &(_, at, len) = self.functions.get(after.checked_sub(1)?)?;
        self.names.get(at as usize..at as usize + usize::from(len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_belongs_to_the_last_function_before_it() {
        let text = "0000000000002000 T schedule\n0000000000001000 t do_wait\t[module]\n0000000000001800 d data\n\
                    0000000000000000 T hidden\nnonsense\n";
        let symbols = KernelSymbols::parse(text);
        let names = [0xfff, 0x1000, 0x1900, 0x2000, u64::MAX].map(|address| symbols.name(address));
        assert_eq!([symbols.address("schedule"), symbols.address("hidden")], [Some(0x2000), None]);
        assert_eq!(names, [None, Some("do_wait"), Some("do_wait"), Some("schedule"), Some("schedule")]);
    }
}
