//! A thread as /proc shows it when the trace begins and ends.

use std::collections::{BTreeSet, HashMap};

use leadline_clockwork::ClockReading;

use crate::accounting::{Counters, Found};

/// Threads of a process that are there.
pub fn threads_of(pid: u32) -> Vec<u32> {
    let mut found = BTreeSet::new();
    loop {
        let before = found.len();
        let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
        found.extend(entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()));
        // A reading may pass over threads when another one ends meanwhile.
        if found.len() == before {
            return found.into_iter().collect();
        }
    }
}

/// What a thread of process `pid` does; None when it is gone.
pub fn look(pid: u32, tid: u32, addresses: &Addresses) -> Option<Found> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/task/{tid}/{name}"));
    let stat = read("stat").ok()?;
    let call = read("syscall").ok();
    let fields = Stat::of(&stat)?;
    let asleep = match fields.word(0) {
        "S" => Some(0x1),
        "D" => Some(0x2),
        "T" => Some(0x4),
        "t" => Some(0x8),
        "I" => Some(0x402),
        "R" => None,
        _ => return None, // it has ended
    };
    let mut comm = [0; 16];
    comm.iter_mut().zip(fields.comm.bytes().take(15)).for_each(|(to, from)| *to = from);
    let clocks = ClockReading::now();
    let start = fields.number(19).saturating_mul(10_000_000); // ticks since boot, of 10 ms
    Some(Found {
        pid,
        parent: fields.number(1) as u32,
        start_ns: start.saturating_sub((clocks.boottime_ns - clocks.monotonic_ns) as u64),
        comm,
        asleep,
        call: if asleep.is_some() { call.as_deref().and_then(call_of) } else { None },
        chain: match asleep {
            Some(_) => read("stack").map_or_else(|_| Vec::new(), |text| addresses.chain(&text)),
            None => Vec::new(),
        },
        counters: counters_of(&fields, &read("schedstat").unwrap_or_default()),
    })
}

/// Addresses of the functions of the kernel by their names, which is how /proc/PID/stack has them.
#[derive(Default)]
pub struct Addresses(HashMap<String, u64>);

impl Addresses {
    /// Of the running kernel; none where it hides them.
    pub fn read() -> Addresses {
        Addresses::of(&std::fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// Of the text of /proc/kallsyms.
    fn of(text: &str) -> Addresses {
        let line = |line: &str| {
            let mut words = line.split_ascii_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
            matches!(words.next()?, "t" | "T" | "w" | "W").then_some(())?;
            Some((words.next()?.to_owned(), address))
        };
        Addresses(text.lines().filter_map(line).collect())
    }

    /// The address of a name; None when the kernel does not say.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// The addresses of lines such as `[<0>] do_epoll_wait+0x6d2/0x8f0`.
    fn chain(&self, stack: &str) -> Vec<u8> {
        let address = |line: &str| {
            let (name, offset) = line.split_ascii_whitespace().nth(1)?.split_once("+0x")?;
            let offset = u64::from_str_radix(offset.split('/').next()?, 16).ok()?;
            Some(self.get(name)?.wrapping_add(offset).to_ne_bytes())
        };
        stack.lines().filter_map(address).flatten().collect()
    }
}

/// What the kernel has counted of a thread; None when it is gone.
pub fn counters(tid: u32) -> Option<Counters> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{tid}/task/{tid}/{name}"));
    Some(counters_of(&Stat::of(&read("stat").ok()?)?, &read("schedstat").ok()?))
}

fn counters_of(stat: &Stat<'_>, schedstat: &str) -> Counters {
    let mut words = schedstat.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0));
    let [run_ns, runq_ns, slices] = std::array::from_fn(|_| words.next().unwrap_or(0));
    Counters { run_ns, runq_ns, slices, minor_faults: stat.number(7), major_faults: stat.number(9) }
}

/// A line of /proc/PID/stat: the name, and the fields after it from the state on.
struct Stat<'a> {
    comm: &'a str,
    fields: Vec<&'a str>,
}

impl<'a> Stat<'a> {
    fn of(text: &'a str) -> Option<Stat<'a>> {
        let (before, after) = text.rsplit_once(')')?;
        let (_, comm) = before.split_once('(')?;
        Some(Stat { comm, fields: after.split_ascii_whitespace().collect() })
    }

    fn word(&self, at: usize) -> &'a str {
        self.fields.get(at).copied().unwrap_or("")
    }

    fn number(&self, at: usize) -> u64 {
        self.word(at).parse().unwrap_or(0)
    }
}

/// The call of a line of /proc/PID/syscall: `Some(None)` when it is in none, None when that cannot be said.
fn call_of(text: &str) -> Option<Option<(u16, [u64; 6])>> {
    let mut words = text.split_ascii_whitespace();
    let nr: i64 = words.next()?.parse().ok()?;
    if nr < 0 {
        return Some(None);
    }
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let mut args = [0; 6];
    for arg in &mut args {
        *arg = hex(words.next()?)?;
    }
    Some(Some((nr.try_into().ok()?, args)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_as_the_kernel_writes_them() {
        assert_eq!(call_of("0 0x3 0x7ff 0x1 0x0 0x0 0xa 0x7ffe 0x7f3\n"), Some(Some((0, [3, 0x7ff, 1, 0, 0, 10]))));
        assert_eq!(call_of("-1 0x7ffe 0x7f3\n"), Some(None));
        assert_eq!([call_of("running\n"), call_of(""), call_of("0 0x3"), call_of("99999999 0x1")], [None; 4]);
    }

    #[test]
    fn names_of_a_stack_become_addresses() {
        let addresses =
            Addresses::of("0000000000001000 t do_wait\n0000000000002000 T sys_read [m]\n0000000000003000 d data\nx\n");
        let chain =
            addresses.chain("[<0>] do_wait+0x1f/0x20\n[<0>] unknown+0x1/0x2\n[<0>] sys_read+0x2/0x9 [m]\n[<0>] \n");
        assert_eq!(chain, [0x101fu64, 0x2002].iter().flat_map(|a| a.to_ne_bytes()).collect::<Vec<_>>());
        assert_eq!((addresses.get("data"), addresses.get("do_wait")), (None, Some(0x1000)));
    }

    #[test]
    fn this_thread_is_found_as_it_is() {
        let (pid, tid) = (std::process::id(), own_tid());
        assert!(threads_of(pid).contains(&pid)); // the first thread, which no reading passes over
        let none = Addresses::default();
        let found = look(pid, tid, &none).expect("it is there");
        assert_eq!((found.pid, found.asleep, found.call), (pid, None, None));
        assert_eq!((look(pid, 0, &none), counters(0)), (None, None));
        let line = "7 (a) b) S 1 7 7 0 -1 64 11 0 12 0 0 0 0 0 20 0 1 0 500 0";
        let stat = Stat::of(line).expect("a line");
        assert_eq!(
            (stat.comm, stat.word(0), stat.number(1), stat.number(7), stat.number(9), stat.number(19)),
            ("a) b", "S", 1, 11, 12, 500)
        );
    }

    fn own_tid() -> u32 {
        // SAFETY: a system call without arguments.
        unsafe { libc::gettid() as u32 }
    }
}
