//! Points and what is made of them.

use super::{number, Text};

fn number(b: &[u8], i: usize, out: &mut Text) -> Option<()> {
    number::float(number::f64(b.get(8 * i..)?)?, 15, out)
}

/// Two numbers from the `i`th on.
fn pair(b: &[u8], i: usize, out: &mut Text) -> Option<()> {
    out.push('(');
    number(b, i, out)?;
    out.push(',');
    number(b, i + 1, out)?;
    out.push(')');
    Some(())
}

fn pairs(b: &[u8], count: usize, out: &mut Text) -> Option<()> {
    for i in 0..count {
        if i > 0 {
            out.push(',');
        }
        pair(b, 2 * i, out)?;
    }
    Some(())
}

pub(super) fn point(b: &[u8], out: &mut Text) -> Option<()> {
    pair(b, 0, out)
}

pub(super) fn box_(b: &[u8], out: &mut Text) -> Option<()> {
    pairs(b, 2, out)
}

pub(super) fn lseg(b: &[u8], out: &mut Text) -> Option<()> {
    out.push('[');
    pairs(b, 2, out)?;
    out.push(']');
    Some(())
}

pub(super) fn line(b: &[u8], out: &mut Text) -> Option<()> {
    for (i, before) in ['{', ',', ','].into_iter().enumerate() {
        out.push(before);
        number(b, i, out)?;
    }
    out.push('}');
    Some(())
}

pub(super) fn circle(b: &[u8], out: &mut Text) -> Option<()> {
    out.push('<');
    pair(b, 0, out)?;
    out.push(',');
    number(b, 2, out)?;
    out.push('>');
    Some(())
}

/// Number of points, whether it is closed, four bytes without meaning, the points.
pub(super) fn path(b: &[u8], out: &mut Text) -> Option<()> {
    let closed = number::u32(b.get(4..)?)? != 0;
    out.push(if closed { '(' } else { '[' });
    pairs(b.get(12..)?, number::u32(b)? as usize, out)?;
    out.push(if closed { ')' } else { ']' });
    Some(())
}

/// Number of points, the box around them, the points.
pub(super) fn polygon(b: &[u8], out: &mut Text) -> Option<()> {
    out.push('(');
    pairs(b.get(36..)?, number::u32(b)? as usize, out)?;
    out.push(')');
    Some(())
}
