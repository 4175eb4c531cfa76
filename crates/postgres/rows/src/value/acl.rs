//! aclitem: who may do what, and who said so.
//!
//! Source: src/include/utils/acl.h, src/backend/utils/adt/acl.c.

use std::collections::HashMap;

use super::{number, show, Text};

/// What may be done, by bit.
const RIGHTS: &str = "arwdDxtXUCTcsAm";

/// `roles`: names by oid. A right and the right to grant it lie 16 bits apart, since 16 they lie 32 bits apart.
pub(super) fn aclitem(b: &[u8], roles: &HashMap<u32, String>, out: &mut Text) -> Option<()> {
    let (grantee, grantor) = (number::u32(b)?, number::u32(b.get(4..)?)?);
    let (rights, grantable) = match b.get(8..)? {
        bits if bits.len() < 8 => (number::u32(bits)? & 0xffff, number::u32(bits)? >> 16),
        bits => (number::u32(bits)?, number::u32(&bits[4..])?),
    };
    // 0 is everybody.
    if grantee != 0 {
        role(grantee, roles, out)?;
    }
    out.push('=');
    for (bit, right) in RIGHTS.chars().enumerate() {
        if rights >> bit & 1 != 0 {
            out.push(right);
        }
        if grantable >> bit & 1 != 0 {
            out.push('*');
        }
    }
    out.push('/');
    role(grantor, roles, out)
}

/// In quotes unless it is of letters, digits and underscores; a number when it is not there any more.
fn role(oid: u32, roles: &HashMap<u32, String>, out: &mut Text) -> Option<()> {
    let Some(name) = roles.get(&oid) else { return show(oid, out) };
    let is_safe = name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_');
    match is_safe {
        true => out.push_name(name),
        false => out.push_name(&format!("\"{}\"", name.replace('"', "\"\""))),
    }
    Some(())
}
