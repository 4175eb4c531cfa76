//! System calls: data/syscalls.csv, from the kernel's asm/unistd_64.h; how many arguments each has, from the formats of its tracepoints (6
//! where it has none).

static TEXT: &str = include_str!("../data/syscalls.csv");

fn lines() -> impl Iterator<Item = (i32, &'static str, u8)> {
    TEXT.lines().skip(1).filter_map(|line| {
        let mut fields = line.split(',');
        let (nr, name, arguments) = (fields.next()?, fields.next()?, fields.next()?);
        Some((nr.parse().ok()?, name, arguments.parse().ok()?))
    })
}

/// Number and name of each.
pub fn all() -> impl Iterator<Item = (i32, &'static str)> {
    lines().map(|(nr, name, _)| (nr, name))
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
        assert_eq!(all().count(), TEXT.lines().count() - 1);
        assert!([(0, "read"), (64, "semget"), (202, "futex")].iter().all(|call| all().any(|found| found == *call)));
        assert_eq!([0, 64, 202, 511].map(|nr: usize| arguments()[nr]), [3, 3, 6, 6]);
    }
}
