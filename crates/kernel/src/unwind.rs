//! User stacks: from the bytes of a stack and three registers to the functions that called each other, also where the compiler left
//! out frame pointers.

use std::collections::HashMap;
use std::sync::Arc;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, Module, Unwinder as _};

use crate::objects::{Bytes, MappedFile, Objects};
use crate::sideband::{Change, Event, Mapped};

/// Frames that are followed at most.
const DEEPEST: usize = 256;

/// One frame: the file (0: none is known) and the address in it as the file numbers them. Of a caller it is the address of the last
/// byte of the call.
pub type Frame = (i32, u64);

/// A stack as it was taken.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Taken<'a> {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// From `sp` on.
    pub bytes: &'a [u8],
}

/// The processes that are traced, with what they have mapped.
#[derive(Default)]
pub struct Processes {
    by_pid: HashMap<u32, Process>,
    cache: CacheX86_64,
    /// The mapped files.
    pub objects: Objects,
}

#[derive(Clone, Default)]
struct Process {
    unwinder: UnwinderX86_64<Bytes>,
    /// By their end.
    maps: Vec<(u64, u64, Arc<MappedFile>, u64)>,
}

impl Processes {
    /// Takes in a process that runs, by its /proc/PID/maps.
    pub fn add(&mut self, pid: u32) {
        let text = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let mut process = Process::default();
        for mapped in text.lines().filter_map(map_of_line) {
            process.map(pid, &mapped, &mut self.objects);
        }
        self.by_pid.insert(pid, process);
    }

    /// Something changed. Processes that nobody traces are passed over.
    pub fn change(&mut self, event: &Event) {
        match &event.change {
            Change::Forked { parent } => {
                if let Some(parent) = self.by_pid.get(parent) {
                    self.by_pid.insert(event.pid, parent.clone());
                }
            }
            Change::Exited => {
                self.objects.forget(event.pid);
                self.by_pid.remove(&event.pid);
            }
            Change::Executed => {
                self.objects.forget(event.pid);
                if let Some(process) = self.by_pid.get_mut(&event.pid) {
                    *process = Process::default();
                }
            }
            Change::Mapped(mapped) => {
                if let Some(process) = self.by_pid.get_mut(&event.pid) {
                    process.map(event.pid, mapped, &mut self.objects);
                }
            }
        }
    }

    /// The frames of a stack of process `pid`, innermost first, and whether they reach the begin of the thread.
    pub fn unwind(&mut self, pid: u32, taken: Taken<'_>) -> (Vec<Frame>, bool) {
        let Some(process) = self.by_pid.get(&pid) else { return (vec![(0, taken.ip)], false) };
        let mut read = |address: u64| {
            let at = usize::try_from(address.checked_sub(taken.sp).ok_or(())?).map_err(|_| ())?;
            let word = taken.bytes.get(at..).and_then(|b| b.first_chunk()).ok_or(())?;
            Ok(u64::from_ne_bytes(*word))
        };
        let registers = UnwindRegsX86_64::new(taken.ip, taken.sp, taken.bp);
        let mut frames = Vec::new();
        let mut walk = process.unwinder.iter_frames(taken.ip, registers, &mut self.cache, &mut read);
        let complete = loop {
            match walk.next() {
                Ok(Some(_)) if frames.len() == DEEPEST => break false,
                Ok(Some(frame)) => frames.push(process.place(frame)),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        for frame in frames.iter_mut().filter(|(file, _)| *file == 0) {
            frame.0 = self.objects.made_by(pid).id;
        }
        (frames, complete)
    }
}

impl Process {
    fn map(&mut self, pid: u32, mapped: &Mapped, objects: &mut Objects) {
        if !mapped.path.starts_with('/') || mapped.path.starts_with("//") {
            return; // memory without a file: //anon, [vdso]
        }
        let file = objects.of(pid, mapped);
        // Where the file's address 0 is.
        let bias = file.address_of(mapped.offset).map(|address| mapped.start.wrapping_sub(address));
        if bias.is_none() && is_memory(&mapped.path) {
            return;
        }
        let end = mapped.start.saturating_add(mapped.len);
        let (unwinder, maps) = (&mut self.unwinder, &mut self.maps);
        maps.retain(|(start, before_end, ..)| {
            let covered = *start < end && mapped.start < *before_end;
            if covered {
                unwinder.remove_module(*start);
            }
            !covered
        });
        if let Some(bias) = bias {
            unwinder.add_module(Module::new(file.path.clone(), mapped.start..end, bias, file.unwind_info()));
        }
        maps.push((mapped.start, end, file, bias.unwrap_or(mapped.start.wrapping_sub(mapped.offset))));
    }

    fn place(&self, frame: FrameAddress) -> Frame {
        let address = frame.address_for_lookup();
        let known = self.maps.iter().find(|(start, end, ..)| (*start..*end).contains(&address));
        known.map_or((0, address), |(_, _, file, bias)| (file.id, address.wrapping_sub(*bias)))
    }
}

/// Whether a mapping has the name of a file without being one: programs that make code keep it in such memory too, to map it twice.
fn is_memory(path: &str) -> bool {
    path.starts_with("/memfd:") || path.starts_with("/dev/zero") || path.starts_with("/SYSV")
}

/// An executable mapping of a file, from a line of /proc/PID/maps.
fn map_of_line(line: &str) -> Option<Mapped> {
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let rights = fields.next()?;
    let offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let (major, minor) = fields.next()?.split_once(':')?;
    let inode = fields.next()?.parse().ok()?;
    let path = fields.next().unwrap_or_default().trim_start();
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let number = |text| u32::from_str_radix(text, 16).ok();
    rights.contains('x').then_some(Mapped {
        start,
        len: end.checked_sub(start)?,
        offset,
        file: (number(major)?, number(minor)?, inode),
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_read() {
        let line = "7f00a000-7f00c000 r-xp 00002000 fe:01 1234                       /opt/with space/lib.so (deleted)";
        let expected = Mapped {
            start: 0x7f00_a000,
            len: 0x2000,
            offset: 0x2000,
            file: (0xfe, 1, 1234),
            path: "/opt/with space/lib.so (deleted)".into(),
        };
        assert_eq!(map_of_line(line), Some(expected));
        for line in
            ["7f00a000-7f00c000 rw-p 00002000 fe:01 1234 /lib.so", "", "7f00a000-7f00c000 r-xp", "x-y r-xp 0 0:0 0 /a"]
        {
            assert_eq!(map_of_line(line), None, "{line}");
        }
    }

    /// A stack of this very process.
    #[test]
    fn a_stack_is_followed_to_its_begin() {
        let taken = std::thread::spawn(|| outer(3)).join().expect("it does not panic");
        let mut processes = Processes::default();
        let pid = std::process::id();
        processes.add(pid);
        let (ip, sp, bp, bytes) = taken;
        let (frames, complete) = processes.unwind(pid, Taken { ip, sp, bp, bytes: &bytes });
        assert!(complete && frames.len() >= 5, "{frames:x?}");
        let this =
            processes.objects.all().find(|o| o.path.contains("leadline_kernel")).expect("the test's own program");
        assert_eq!(frames[0].0, this.id);
        // Cut in the middle it is told as cut.
        let (fewer, complete) = processes.unwind(pid, Taken { ip, sp, bp, bytes: &bytes[..64] });
        assert!(!complete && fewer.len() < frames.len() && frames.starts_with(&fewer));
        assert_eq!(processes.unwind(1, Taken { ip, sp, bp, bytes: &bytes }), (vec![(0, ip)], false));
    }

    #[inline(never)]
    fn outer(n: u64) -> (u64, u64, u64, Vec<u8>) {
        if n > 0 {
            std::hint::black_box(outer(n - 1))
        } else {
            snapshot()
        }
    }

    #[inline(never)]
    fn snapshot() -> (u64, u64, u64, Vec<u8>) {
        let (ip, sp, bp): (u64, u64, u64);
        // SAFETY: reads three registers; then the stack from there to its end, which is mapped and belongs to this thread.
        unsafe {
            std::arch::asm!("lea {0}, [rip]", "mov {1}, rsp", "mov {2}, rbp", out(reg) ip, out(reg) sp, out(reg) bp);
            let end = end_of_stack();
            let bytes = std::slice::from_raw_parts(sp as *const u8, (end - sp) as usize).to_vec();
            (ip, sp, bp, bytes)
        }
    }

    fn end_of_stack() -> u64 {
        // SAFETY: asks the C library for the attributes of the running thread.
        unsafe {
            let (mut attr, mut base, mut size) = (std::mem::zeroed(), std::ptr::null_mut(), 0);
            assert_eq!(libc::pthread_getattr_np(libc::pthread_self(), &raw mut attr), 0);
            libc::pthread_attr_getstack(&raw const attr, &raw mut base, &raw mut size);
            libc::pthread_attr_destroy(&raw mut attr);
            base as u64 + size as u64
        }
    }
}
