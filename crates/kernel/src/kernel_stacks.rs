//! Stacks of functions of the kernel, each once.

use std::collections::HashMap;

use leadline_capture::Value;
use leadline_clockwork::OpenTables;
use leadline_errors::Error;

use crate::symbols::KernelSymbols;

/// Addresses of the kernel have this bit; bpf/known_stack.h takes it from what it marks.
const WAIT_MARK: u64 = 1 << 63;

/// Functions that wait for a lock of the kernel, as the macro `is_kernel_lock` of python/leadline/tables/macros.sql knows them.
fn is_lock(name: &str) -> bool {
    let name = name.trim_start_matches('_');
    ["rwsem_", "mutex_lock", "percpu_rwsem", "down"].iter().any(|begin| name.starts_with(begin))
}

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

    /// From where to where the kernel has the functions of its scheduler and its locks; nowhere when it does not say.
    pub fn scheduler(&self) -> (u64, u64) {
        let address = |name| self.symbols.address(name).unwrap_or(0);
        (address("__sched_text_start"), address("__sched_text_end"))
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
        self.new.push((id, self.without_wait(addresses.collect())));
        id
    }

    /// What a thread called of the scheduler stands first and is marked: kept when it is a lock. What else there is, such as a timeout,
    /// says less than who called it.
    fn without_wait(&self, mut addresses: Vec<u64>) -> Vec<u64> {
        if let Some(first) = addresses.first_mut().filter(|a| **a & WAIT_MARK == 0 && **a != 0) {
            *first |= WAIT_MARK;
            if !self.symbols.name(*first).is_some_and(is_lock) {
                addresses.remove(0);
            }
        }
        addresses
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
