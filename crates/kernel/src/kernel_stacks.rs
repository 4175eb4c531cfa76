//! Stacks of functions of the kernel, each once.

use std::collections::HashMap;

use leadline_capture::Value;
use leadline_clockwork::OpenTables;
use leadline_errors::Error;

use crate::symbols::KernelSymbols;

/// The stacks seen so far.
pub struct KernelStacks {
    symbols: KernelSymbols,
    known: HashMap<Vec<u8>, i32>,
    new: Vec<(i32, Vec<u64>)>,
}

impl KernelStacks {
    /// With the names of the running kernel.
    pub fn new() -> KernelStacks {
        KernelStacks { symbols: KernelSymbols::read(), known: HashMap::new(), new: Vec::new() }
    }

    /// The number of a stack of return addresses, innermost first; 0 of none.
    pub fn id(&mut self, frames: &[u8]) -> i32 {
        if frames.is_empty() {
            return 0;
        }
        if let Some(id) = self.known.get(frames) {
            return *id;
        }
        let id = self.known.len() as i32 + 1;
        self.known.insert(frames.to_vec(), id);
        let addresses = frames.chunks_exact(8).filter_map(|b| b.first_chunk().map(|b| u64::from_ne_bytes(*b)));
        self.new.push((id, addresses.collect()));
        id
    }

    /// Writes those that are new.
    pub fn write(&mut self, tables: &mut OpenTables) -> Result<(), Error> {
        for (id, addresses) in self.new.drain(..) {
            let name = |a: &u64| self.symbols.name(*a).map_or_else(|| format!("{a:#x}"), ToOwned::to_owned);
            let names: Vec<String> = addresses.iter().map(name).collect();
            let functions: Vec<Value<'_>> = names.iter().map(|n| Value::Text(n)).collect();
            let addresses: Vec<Value<'_>> = addresses.iter().map(|a| Value::UInt(*a)).collect();
            let innermost = names.first().map_or("", String::as_str);
            let row =
                vec![Value::Int(id.into()), Value::Text(innermost), Value::List(&functions), Value::List(&addresses)];
            tables.write_rows("kernel_stack", [row])?;
        }
        Ok(())
    }
}
