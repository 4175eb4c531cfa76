//! Memory of a stopped process: strings, lists of buffers, socket addresses. Anything may be there.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of a path that are read at most.
const LONGEST_PATH: usize = 4096;

/// Up to `length` bytes at `address`: fewer where memory ends.
pub(crate) fn read(pid: i32, address: u64, length: usize) -> Vec<u8> {
    let mut out = vec![0_u8; length];
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: length };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: length };
    // SAFETY: the local buffer is as long as its iovec says; the remote one is checked by the kernel.
    let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    out.truncate(usize::try_from(read).unwrap_or(0));
    out
}

/// A string that ends with a zero byte; None if it cannot be read. Read in pieces that end with a page: the next one may not be there.
pub(crate) fn string(pid: i32, address: u64) -> Option<Vec<u8>> {
    let mut out: Vec<u8> = Vec::new();
    while out.len() < LONGEST_PATH {
        let at = address.checked_add(out.len() as u64)?;
        let piece = read(pid, at, (256 - (at % 256)) as usize);
        if piece.is_empty() {
            return None;
        }
        if let Some(end) = piece.iter().position(|byte| *byte == 0) {
            out.extend_from_slice(&piece[..end]);
            return Some(out);
        }
        out.extend_from_slice(&piece);
    }
    Some(out)
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// What `writev` writes: the first bytes of its buffers, `length` at most.
pub(crate) fn gathered(pid: i32, buffers: u64, count: u64, length: usize) -> Vec<u8> {
    let list = read(pid, buffers, 16 * count.min(16) as usize);
    let mut out = Vec::new();
    for at in (0..list.len()).step_by(16) {
        let (Some(address), Some(bytes)) = (number(&list, at), number(&list, at + 8)) else { break };
        let room = length.saturating_sub(out.len());
        out.extend(read(pid, address, (bytes as usize).min(room)));
    }
    out
}

/// A socket address as people write it, and its port.
pub(crate) fn address(bytes: &[u8]) -> Option<(String, Option<u16>)> {
    let family = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
    match i32::from(family) {
        libc::AF_INET => {
            let host: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some((format!("{}:{}", Ipv4Addr::from(host), port()?), port()))
        }
        libc::AF_INET6 => {
            let host: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some((format!("[{}]:{}", Ipv6Addr::from(host), port()?), port()))
        }
        libc::AF_UNIX => {
            let path = bytes.get(2..)?;
            let name = match path.first() {
                Some(0) => format!("@{}", text(path.get(1..)?)),
                _ => text(path.split(|byte| *byte == 0).next()?),
            };
            Some((name, None))
        }
        _ => None,
    }
}

/// Bytes as text: what is no UTF-8 is written as \xNN.
pub(crate) fn text(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let mut v4 = vec![2, 0, 0x15, 0x38, 127, 0, 0, 1];
        assert_eq!(address(&v4), Some(("127.0.0.1:5432".into(), Some(5432))));
        v4.truncate(7);
        assert_eq!(address(&v4), None);
        assert_eq!(address(b"\x01\x00/run/x\0junk"), Some(("/run/x".into(), None)));
        assert_eq!(address(b"\x01\x00\0abstract"), Some(("@abstract".into(), None)));
        assert_eq!(address(b"\x10\x00\0\0\0\0"), None);
        assert_eq!(address(b"\x01"), None);
    }

    #[test]
    fn own_memory() {
        let pid = std::process::id() as i32;
        let name = b"/tmp/\xff\0after";
        assert_eq!(string(pid, name.as_ptr() as u64).map(|found| text(&found)), Some("/tmp/\\xff".into()));
        assert_eq!(string(pid, 8), None);
        assert_eq!(string(pid, u64::MAX), None);
        assert_eq!(gathered(pid, 8, u64::MAX, 100), b"");
    }
}
