//! Names of system calls: data/syscalls.csv, from the kernel's asm/unistd_64.h.

static TEXT: &str = include_str!("../data/syscalls.csv");

/// Number and name of each.
pub fn all() -> impl Iterator<Item = (i32, &'static str)> {
    TEXT.lines().skip(1).filter_map(|line| {
        let (nr, name) = line.split_once(',')?;
        Some((nr.parse().ok()?, name))
    })
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
