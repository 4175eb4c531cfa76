//! The cursor of `leadline-bytes`, beside a model of it that is nothing but an offset.

use leadline_bytes::{Bytes, Endian, Truncated};

use crate::choice;

/// The input is a program: pairs of an operation and a length, run over the input's own bytes.
pub fn cursor(data: &[u8]) -> &'static str {
    let (first, _) = choice(data);
    // Offsets in errors must not overflow either.
    let base = if first & 1 == 0 { first as u64 } else { u64::MAX - 100 };
    let mut little = Bytes::new(data, Endian::Little).at(base);
    let mut big = Bytes::new(data, Endian::Big).at(base);
    let mut at = 0;
    let mut reached = "whole";
    for pair in data.chunks_exact(2) {
        let len = usize::from(pair[1]) % 16;
        let wanted = match pair[0] % 10 {
            op @ 0..=5 => {
                let width = [2, 4, 8, 2, 4, 8][usize::from(op)];
                let read: (_, _) = match op {
                    0 => (little.u16("n").map(u64::from), big.u16("n").map(u64::from)),
                    1 => (little.u32("n").map(u64::from), big.u32("n").map(u64::from)),
                    2 => (little.u64("n"), big.u64("n")),
                    3 => (little.i16("n").map(|n| n as u16 as u64), big.i16("n").map(|n| n as u16 as u64)),
                    4 => (little.i32("n").map(|n| n as u32 as u64), big.i32("n").map(|n| n as u32 as u64)),
                    _ => (little.i64("n").map(|n| n as u64), big.i64("n").map(|n| n as u64)),
                };
                if let (Ok(little), Ok(big)) = read {
                    let value = |bytes: &mut dyn Iterator<Item = &u8>| bytes.fold(0, |n, b| n << 8 | u64::from(*b));
                    assert_eq!(big, value(&mut data[at..at + width].iter()));
                    assert_eq!(little, value(&mut data[at..at + width].iter().rev()));
                }
                assert_eq!(read.0.is_ok(), read.1.is_ok());
                outcome(read.0, data, at, base, width)
            }
            6 => {
                big.u8("n").ok();
                outcome(little.u8("n"), data, at, base, 1)
            }
            7 => {
                big.take("n", len).ok();
                outcome(little.take("n", len), data, at, base, len)
            }
            8 => {
                big.part("n", len).ok();
                let part = little.part("n", len);
                if let Ok(part) = part {
                    assert_eq!((part.rest(), part.offset()), (&data[at..at + len], base.saturating_add(at as u64)));
                }
                outcome(part, data, at, base, len)
            }
            _ => {
                little.align(len);
                big.align(len);
                at.next_multiple_of(len.max(1)).min(data.len()) - at
            }
        };
        if wanted == 0 && pair[0] % 10 < 7 {
            reached = "truncated";
        }
        at += wanted;
        for cursor in [&little, &big] {
            assert_eq!((cursor.done(), cursor.left(), cursor.rest()), (at, data.len() - at, &data[at..]));
        }
    }
    reached
}

/// How far a read of `len` bytes at `at` went; what it says when there are too few.
fn outcome<T>(read: Result<T, Truncated>, data: &[u8], at: usize, base: u64, len: usize) -> usize {
    match read {
        Ok(_) => len,
        Err(e) => {
            assert!(len > data.len() - at, "{e} although there are enough");
            assert_eq!((e.what, e.wanted, e.left), ("n", len, data.len() - at));
            assert_eq!(e.offset, base.saturating_add(at as u64));
            assert!(!e.to_string().is_empty());
            0
        }
    }
}
