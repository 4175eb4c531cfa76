//! Numbers of transactions: 32 bits that go round, and which of them is later. Source: `access/transam/{transam,varsup}.c`.

/// The first that is not special.
const FIRST: u32 = 3;

/// Whether one transaction began before another. Special numbers are before all others.
pub(crate) fn precedes(a: u32, b: u32) -> bool {
    if a < FIRST || b < FIRST {
        return a < b;
    }
    (a.wrapping_sub(b) as i32) < 0
}

/// `AdvanceNextFullTransactionIdPastXid`: the next number once this one was seen.
pub(crate) fn past(next: u64, xid: u32) -> u64 {
    let (epoch, next_xid) = (next >> 32, next as u32);
    if xid < FIRST || precedes(xid, next_xid) {
        return next;
    }
    let after = xid.wrapping_add(1).max(FIRST);
    let epoch = epoch + u64::from(after < next_xid);
    epoch << 32 | u64::from(after)
}

/// The number with its epoch, of a transaction that began before `next`.
pub(crate) fn full(next: u64, xid: u32) -> u64 {
    let (epoch, next_xid) = (next >> 32, next as u32);
    let epoch = if xid > next_xid { epoch.saturating_sub(1) } else { epoch };
    epoch << 32 | u64::from(xid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round() {
        assert_eq!(past(100, 99), 100);
        assert_eq!(past(100, 100), 101);
        assert_eq!(past(0xFFFF_FFFF, 0xFFFF_FFFF), 1 << 32 | 3);
        assert_eq!(past(0xFFFF_FFF0, 5), 1 << 32 | 6);
        assert_eq!(past(1 << 32 | 7, 0xFFFF_FFFF), 1 << 32 | 7);
        assert_eq!(full(1 << 32 | 7, 0xFFFF_FFFF), 0xFFFF_FFFF);
        assert_eq!(full(1 << 32 | 7, 6), 1 << 32 | 6);
        assert!(precedes(0xFFFF_FFFF, 5) && !precedes(5, 0xFFFF_FFFF) && precedes(0, 5));
    }
}
