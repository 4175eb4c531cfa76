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

/// How many arguments each has, by number.
pub fn arguments() -> [u8; 512] {
    let mut counts = [6; 512];
    for (nr, _, arguments) in lines().filter(|(nr, ..)| *nr < 512) {
        counts[nr as usize] = arguments;
    }
    counts
}

/// A bit for each of these calls, by number.
pub fn bits(names: &[&str]) -> [u64; 8] {
    let mut bits = [0; 8];
    for (nr, _) in all().filter(|(nr, name)| *nr < 512 && names.contains(name)) {
        bits[nr as usize / 64] |= 1 << (nr % 64);
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
        assert_eq!([0, 64, 202, 511].map(|nr: usize| arguments()[nr]), [3, 3, 6, 6]);
    }
}
