//! Names of system calls: data/syscalls.csv, from the kernel's asm/unistd_64.h.

static TEXT: &str = include_str!("../data/syscalls.csv");

/// Number and name of each.
pub fn all() -> impl Iterator<Item = (i32, &'static str)> {
    TEXT.lines().skip(1).filter_map(|line| {
        let (nr, name) = line.split_once(',')?;
        Some((nr.parse().ok()?, name))
    })
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
    }
}
