//! Which LWLocks a backend holds: the server's private `held_lwlocks` list, read from each backend.
//!
//! The two variables are static. Where the binary kept its symbol table they are found by name, else they are the first
//! two addresses the exported function `LWLockHeldByMe` works with: it reads the count and walks the array.

use crate::elf::Binary;
use crate::layout::Layout;
use crate::memory::{Memory, ProcessMemory, Read};
use iced_x86::{Decoder, DecoderOptions, Mnemonic, OpKind, Register};

/// lwlock.c, MAX_SIMUL_LWLOCKS.
const MAX_HELD: u32 = 200;
/// lwlock.h, LWLockMode.
const LW_EXCLUSIVE: u32 = 0;

/// Run-time addresses of `num_held_lwlocks` and `held_lwlocks`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldLocks {
    /// Address of the count (int).
    pub count: u64,
    /// Address of the array of {LWLock *lock; LWLockMode mode}.
    pub array: u64,
}

/// One held lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Address of the LWLock.
    pub lock: u64,
    /// Exclusive or shared.
    pub exclusive: bool,
}

impl HeldLocks {
    /// Finds the variables in a binary loaded at `base`.
    pub fn find(binary: &Binary, base: u64) -> Option<HeldLocks> {
        if let (Some(count), Some(array)) = (binary.symbol("num_held_lwlocks"), binary.symbol("held_lwlocks")) {
            return Some(HeldLocks { count: base.wrapping_add(count), array: base.wrapping_add(array) });
        }
        let (address, code) = binary.code("LWLockHeldByMe", 128)?;
        let inside = |a: u64| binary.writable.iter().any(|&(from, size)| a >= from && a - from < size);
        let mut found = Vec::new();
        for instruction in Decoder::with_ip(64, code, address, DecoderOptions::NONE) {
            let mut candidates = Vec::new();
            if instruction.is_ip_rel_memory_operand() {
                candidates.push(instruction.ip_rel_memory_address());
            } else if (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory)
                && instruction.memory_base() != Register::RSP
            {
                candidates.push(instruction.memory_displacement64());
            }
            if instruction.mnemonic() == Mnemonic::Mov && instruction.op_kind(1) == OpKind::Immediate32 {
                candidates.push(u64::from(instruction.immediate32()));
            }
            for candidate in candidates {
                if inside(candidate) && !found.contains(&candidate) {
                    found.push(candidate);
                }
            }
        }
        match found[..] {
            [count, array, ..] if count.abs_diff(array) < 64 * 1024 => {
                Some(HeldLocks { count: base.wrapping_add(count), array: base.wrapping_add(array) })
            }
            _ => None,
        }
    }

    /// The locks a backend holds now. Torn lists are possible; an impossible count gives an empty one.
    pub fn read(&self, pid: i32, layout: &Layout) -> Read<Vec<Held>> {
        let backend = ProcessMemory { pid };
        let count = backend.u32(self.count)?;
        if count == 0 || count > MAX_HELD {
            return Ok(Vec::new());
        }
        let size = layout.held_size as usize;
        let mut bytes = vec![0u8; count as usize * size];
        backend.read(self.array, &mut bytes)?;
        let held = |entry: &[u8]| {
            let lock = entry.get(layout.held_lock as usize..)?.first_chunk()?;
            let mode = entry.get(layout.held_mode as usize..)?.first_chunk()?;
            Some(Held { lock: u64::from_le_bytes(*lock), exclusive: u32::from_le_bytes(*mode) == LW_EXCLUSIVE })
        };
        Ok(bytes.chunks_exact(size).filter_map(held).collect())
    }

    /// Does the list look like one in this backend? Used once at attach.
    pub fn plausible(&self, pid: i32, layout: &Layout, segment: std::ops::Range<u64>) -> bool {
        let backend = ProcessMemory { pid };
        match backend.u32(self.count) {
            Ok(count) if count <= MAX_HELD => {
                self.read(pid, layout).is_ok_and(|held| held.iter().all(|h| segment.contains(&h.lock)))
            }
            _ => false,
        }
    }
}
