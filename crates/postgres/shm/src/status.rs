//! One session's status entry (PgBackendStatus), read while the server may be writing it.
//!
//! The server makes `st_changecount` odd before a change and even after it: a copy is whole when the count was even and
//! the same before and after.

use crate::layout::Layout;
use crate::memory::{Memory, Read};
use libc::{sockaddr_in, sockaddr_in6};
use std::mem::{offset_of, size_of};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Bytes of a name with the zero behind it.
pub(crate) const NAMEDATALEN: usize = 64;

/// Bytes of the longest address of interest.
const ADDRESS: usize = size_of::<sockaddr_in6>();

/// Server timestamps count microseconds from 2000-01-01; ours from 1970.
pub const UNIX_EPOCH_OFFSET_US: i64 = 946_684_800_000_000;

/// How often a changing entry is read again within one pass.
const TRIES: u32 = 4;

/// What changes from statement to statement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)] // columns of session_run
pub struct Activity {
    pub state: i32,
    pub xact_start: i64,
    pub query_start: i64,
    pub state_change: i64,
    pub query_id: i64,
    pub plan_id: i64,
}

/// What stays for the life of a session, but for the application name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[allow(missing_docs)] // columns of session
pub struct Identity {
    pub pid: i32,
    pub backend_start: i64,
    pub backend_type_code: u32,
    pub datid: u32,
    pub usesysid: u32,
    pub client_addr: String,
    pub client_port: i32,
    pub ssl: bool,
    pub application_name: String,
}

/// Result of reading an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry<T> {
    /// A whole copy, its changecount, and how often it had to be read again.
    Whole(T, u32, u32),
    /// Still changing after the last try.
    Torn,
}

/// Unix microseconds of a time of the server; 0 stays 0.
pub(crate) fn unix_us(raw: u64) -> i64 {
    match raw as i64 {
        0 => 0,
        us => us.saturating_add(UNIX_EPOCH_OFFSET_US),
    }
}

/// Runs `copy` until the entry did not change meanwhile.
pub fn read_whole<M: Memory, T>(
    mem: &M,
    layout: &Layout,
    entry: u64,
    mut copy: impl FnMut(&M) -> Read<T>,
) -> Read<Entry<T>> {
    let count = entry + layout.be_changecount;
    for tries in 0..TRIES {
        let before = mem.u32(count)?;
        if before % 2 == 0 {
            let value = copy(mem)?;
            std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
            if mem.u32(count)? == before {
                return Ok(Entry::Whole(value, before, tries));
            }
        }
        std::hint::spin_loop();
    }
    Ok(Entry::Torn)
}

/// The fields that change with each statement.
pub fn read_activity<M: Memory>(mem: &M, layout: &Layout, entry: u64) -> Read<Activity> {
    Ok(Activity {
        state: layout.state_code(mem.u32(entry + layout.be_state)?),
        xact_start: unix_us(mem.u64(entry + layout.be_xact_start)?),
        query_start: unix_us(mem.u64(entry + layout.be_activity_start)?),
        state_change: unix_us(mem.u64(entry + layout.be_state_start)?),
        query_id: layout.be_query_id.map_or(Ok(0), |o| mem.u64(entry + o))? as i64,
        plan_id: layout.be_plan_id.map_or(Ok(0), |o| mem.u64(entry + o))? as i64,
    })
}

/// The fields that say who it is.
pub fn read_identity<M: Memory>(mem: &M, layout: &Layout, entry: u64) -> Read<Identity> {
    let mut addr = [0u8; ADDRESS];
    mem.read(entry + layout.be_client_addr, &mut addr)?;
    let (client_addr, client_port) = decode_address(&addr);
    let mut name = Vec::new();
    let name_at = mem.u64(entry + layout.be_appname)?;
    if name_at != 0 {
        mem.c_string(name_at, NAMEDATALEN, &mut name)?;
    }
    Ok(Identity {
        pid: mem.u32(entry + layout.be_procpid)? as i32,
        backend_type_code: mem.u32(entry + layout.be_backend_type)?,
        backend_start: unix_us(mem.u64(entry + layout.be_proc_start)?),
        datid: mem.u32(entry + layout.be_databaseid)?,
        usesysid: mem.u32(entry + layout.be_userid)?,
        client_addr,
        client_port,
        ssl: mem.u8(entry + layout.be_ssl)? != 0,
        application_name: String::from_utf8_lossy(&name).into_owned(),
    })
}

/// Address and port of the first bytes of a sockaddr_storage; "local" for a unix socket, "" for none.
fn decode_address(bytes: &[u8; ADDRESS]) -> (String, i32) {
    // Family and port are at the same place in both kinds of address.
    let port = u16::from_be_bytes(field(bytes, offset_of!(sockaddr_in, sin_port))).into();
    match u16::from_ne_bytes(field(bytes, offset_of!(sockaddr_in, sin_family))).into() {
        libc::AF_UNIX => ("local".into(), -1),
        libc::AF_INET => (Ipv4Addr::from(field(bytes, offset_of!(sockaddr_in, sin_addr))).to_string(), port),
        libc::AF_INET6 => (Ipv6Addr::from(field(bytes, offset_of!(sockaddr_in6, sin6_addr))).to_string(), port),
        _ => (String::new(), -1),
    }
}

/// The bytes of a field of an address.
fn field<const N: usize>(bytes: &[u8; ADDRESS], offset: usize) -> [u8; N] {
    bytes.get(offset..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::FakeMemory;

    fn entry(layout: &Layout) -> FakeMemory {
        let mut mem = FakeMemory { pieces: vec![(0x1000, vec![0; layout.be_size as usize]), (0x9000, vec![0; 64])] };
        mem.put(0x9000, b"psql");
        mem.put_u32(0x1000 + layout.be_procpid, 77);
        mem.put_u32(0x1000 + layout.be_backend_type, 4);
        mem.put_u64(0x1000 + layout.be_xact_start, 1);
        mem.put_u32(0x1000 + layout.be_state, 2);
        mem.put_u64(0x1000 + layout.be_appname, 0x9000);
        mem.put(0x1000 + layout.be_client_addr, &[2, 0, 0x15, 0x38, 127, 0, 0, 1]);
        mem
    }

    #[test]
    fn an_entry_decodes() {
        let layout = Layout::of(15).unwrap();
        let mem = entry(&layout);
        let activity = read_activity(&mem, &layout, 0x1000).unwrap();
        assert_eq!((activity.state, activity.xact_start, activity.query_start), (2, UNIX_EPOCH_OFFSET_US + 1, 0));
        let identity = read_identity(&mem, &layout, 0x1000).unwrap();
        assert_eq!((identity.pid, identity.client_addr.as_str(), identity.client_port), (77, "127.0.0.1", 5432));
        assert_eq!(identity.application_name, "psql");
    }

    #[test]
    fn an_entry_being_written_is_torn_never_half_read() {
        let layout = Layout::of(15).unwrap();
        let mut mem = entry(&layout);
        mem.put_u32(0x1000 + layout.be_changecount, 3);
        assert_eq!(read_whole(&mem, &layout, 0x1000, |m| read_activity(m, &layout, 0x1000)), Ok(Entry::Torn));
    }

    #[test]
    fn an_address_is_of_its_family() {
        let decoded = |start: &[u8]| {
            let mut bytes = [0; ADDRESS];
            bytes[..start.len()].copy_from_slice(start);
            decode_address(&bytes)
        };
        let (family, port) = (|family: i32| (family as u16).to_ne_bytes(), 5432u16.to_be_bytes());
        let v4 = [family(libc::AF_INET), port, [192, 0], [2, 7]].concat();
        assert_eq!(decoded(&v4), ("192.0.2.7".into(), 5432));
        let v6 = [&family(libc::AF_INET6)[..], &port, &[9; 4], &[0x20, 1, 0xd, 0xb8], &[0; 11], &[7], &[9; 4]].concat();
        assert_eq!(decoded(&v6), ("2001:db8::7".into(), 5432));
        assert_eq!(decoded(&family(libc::AF_UNIX)), ("local".into(), -1));
        assert_eq!(decoded(&[]), (String::new(), -1));
    }

    #[test]
    fn a_wild_name_pointer_faults() {
        let layout = Layout::of(15).unwrap();
        let mut mem = entry(&layout);
        mem.put_u64(0x1000 + layout.be_appname, u64::MAX - 3);
        assert!(read_identity(&mem, &layout, 0x1000).is_err());
    }
}
