//! Addresses of networks and of network cards.

use super::{show, Text};

/// Family (2 or 3), bits of the mask, address. `cidr` always says the bits, inet when they are not all of them.
pub(super) fn inet(b: &[u8], cidr: bool, out: &mut Text) -> Option<()> {
    let [family, mask, address @ ..] = b else { return None };
    let most = match family {
        2 => {
            let [a, b, c, d] = address.first_chunk()?;
            show(format_args!("{a}.{b}.{c}.{d}"), out)?;
            32
        }
        3 => {
            six(address.first_chunk()?, out)?;
            128
        }
        _ => return None,
    };
    if cidr || *mask != most {
        show(format_args!("/{mask}"), out)?;
    }
    Some(())
}

/// The longest run of two and more zero words is `::`; addresses of IPv4 within IPv6 end as such.
fn six(b: &[u8; 16], out: &mut Text) -> Option<()> {
    let words: Vec<u16> = b.chunks_exact(2).map(|w| u16::from_be_bytes([w[0], w[1]])).collect();
    let (mut start, mut len) = (0, 0);
    let mut at = 0;
    while at < 8 {
        let run = words[at..].iter().take_while(|w| **w == 0).count();
        if run > len {
            (start, len) = (at, run);
        }
        at += run.max(1);
    }
    if len < 2 {
        len = 0;
    }
    let four = start == 0 && (len == 6 || (len == 5 && words[5] == 0xffff));
    let mut i = 0;
    while i < 8 {
        if len > 0 && i == start {
            out.push_str(if i == 0 { "::" } else { ":" });
            i += len;
            continue;
        }
        if four && i == 6 {
            return show(format_args!("{}.{}.{}.{}", b[12], b[13], b[14], b[15]), out);
        }
        show(format_args!("{:x}", words[i]), out)?;
        i += 1;
        if i < 8 {
            out.push(':');
        }
    }
    Some(())
}

pub(super) fn mac<const N: usize>(b: &[u8], out: &mut Text) -> Option<()> {
    let bytes: &[u8; N] = b.first_chunk()?;
    for (i, byte) in bytes.iter().enumerate() {
        show(format_args!("{}{byte:02x}", if i > 0 { ":" } else { "" }), out)?;
    }
    Some(())
}
