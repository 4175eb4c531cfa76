//! System calls: data/syscalls.csv, from the kernel's asm/unistd_64.h; how many arguments each has, from the formats of its tracepoints (6
//! where it has none). Programs of 32 bit have a table of their own: data/syscalls_32.csv, from asm/unistd_32.h.

static TEXT: &str = include_str!("../data/syscalls.csv");
static TEXT_32: &str = include_str!("../data/syscalls_32.csv");

/// What the numbers of 32-bit calls are counted from in a trace (bpf/trace.bpf.c).
const FROM_32: i32 = 4096;

fn lines() -> impl Iterator<Item = (i32, &'static str, u8)> {
    TEXT.lines().skip(1).filter_map(|line| {
        let mut fields = line.split(',');
        let (nr, name, arguments) = (fields.next()?, fields.next()?, fields.next()?);
        Some((nr.parse().ok()?, name, arguments.parse().ok()?))
    })
}

/// Number and name of each.
pub fn all() -> impl Iterator<Item = (i32, &'static str)> {
    let of_32 = TEXT_32.lines().skip(1).filter_map(|line| line.split_once(','));
    let of_32 = of_32.filter_map(|(nr, name)| Some((FROM_32 + nr.parse::<i32>().ok()?, name)));
    lines().map(|(nr, name, _)| (nr, name)).chain(of_32)
}

/// Calls of each table that are in tables by number (bpf/files.h).
const CALLS: usize = 512;

/// Where a call stands in such a table: first those of 64 bit, then those of 32 bit.
fn place(nr: i32) -> Option<usize> {
    let (first, nr) = if nr < FROM_32 { (0, nr) } else { (CALLS, nr - FROM_32) };
    usize::try_from(nr).ok().filter(|nr| *nr < CALLS).map(|nr| first + nr)
}

/// Calls that have more arguments in 32 bit, because an offset takes two.
const SPLIT: &[&str] = &["pread64", "pwrite64", "readahead", "fadvise64", "fallocate", "sync_file_range"];

/// How many arguments each has. Those of 32 bit have as many as the call of that name.
pub fn arguments() -> [u8; 2 * CALLS] {
    let mut counts = [6; 2 * CALLS];
    for (nr, name) in all().filter(|(nr, name)| *nr < FROM_32 || !SPLIT.contains(name)) {
        let known = lines().find(|(_, other, _)| *other == name).map(|(.., arguments)| arguments);
        if let (Some(place), Some(known)) = (place(nr), known) {
            counts[place] = known;
        }
    }
    counts
}

/// A bit for each of these calls.
pub fn bits(names: &[&str]) -> [u64; 2 * CALLS / 64] {
    let mut bits = [0; 2 * CALLS / 64];
    for place in all().filter(|(_, name)| names.contains(name)).filter_map(|(nr, _)| place(nr)) {
        bits[place / 64] |= 1 << (place % 64);
    }
    bits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_call() {
        assert_eq!(all().count(), TEXT.lines().count() + TEXT_32.lines().count() - 2);
        assert!([(0, "read"), (64, "semget"), (202, "futex"), (4096 + 20, "getpid"), (4096 + 64, "getppid")]
            .iter()
            .all(|call| all().any(|found| found == *call)));
        let [open_64, open_32] = [2, CALLS + 5].map(|bit| bits(&["open"])[bit / 64] >> (bit % 64) & 1);
        assert_eq!((open_64, open_32, bits(&["open"]).iter().map(|word| word.count_ones()).sum::<u32>()), (1, 1, 2));
        assert_eq!([0, 64, 202, 511, CALLS + 3, CALLS + 180].map(|at| arguments()[at]), [3, 3, 6, 6, 3, 6]);
    }
}
