//! Programs of classic BPF, as libpcap compiles them from an expression of tcpdump: whether a packet of a file is wanted. Those of an
//! interface run in the kernel.

use crate::packet::{Link, Packet};
use leadline_errors::{Error, Kind, Result};

/// An instruction, as `struct sock_filter`.
pub type Instruction = libc::sock_filter;

/// Words of memory that a program has (BPF_MEMWORDS).
const WORDS: usize = 16;
/// Instructions of a program (BPF_MAXINSNS).
const MOST: usize = 4096;
/// Bytes in front of an IP packet that is not from a program's kind of link: an address family.
const FAMILY: usize = 4;

/// A program that ends and stays within its memory, whatever it is given.
#[derive(Debug, Clone)]
pub struct Program(Vec<Instruction>);

impl Program {
    /// Checks what another wrote.
    ///
    /// # Errors
    /// `invalid`: an instruction that is not known, a jump or a word of memory beyond the end.
    pub fn new(instructions: Vec<Instruction>) -> Result<Program> {
        let length = instructions.len();
        let is_good = |(at, i): (usize, &Instruction)| {
            let jump = |by: usize| at.checked_add(1 + by).is_some_and(|to| to < length);
            match (i.code & 7, i.code) {
                (0, 0x00 | 0x20 | 0x28 | 0x30 | 0x40 | 0x48 | 0x50 | 0x80) | (1, 0x01 | 0x81 | 0xB1) => true,
                (0, 0x60) | (1, 0x61) | (2, 0x02) | (3, 0x03) => (i.k as usize) < WORDS,
                (4, 0x34 | 0x94) => i.k != 0,
                (4, 0x64 | 0x74) => i.k < 32,
                (4, code) => code & 0xFF00 == 0 && code >> 4 <= 0xA,
                (5, 0x05) => jump(i.k as usize),
                (5, 0x15 | 0x1D | 0x25 | 0x2D | 0x35 | 0x3D | 0x45 | 0x4D) => jump(i.jt.into()) && jump(i.jf.into()),
                (6, 0x06 | 0x16) | (7, 0x07 | 0x87) => true,
                _ => false,
            }
        };
        let ends = instructions.last().is_some_and(|i| i.code & 7 == 6);
        if !ends || length > MOST || !instructions.iter().enumerate().all(is_good) {
            return Err(Error::new(Kind::Invalid, "this is not a program of the packet filter"));
        }
        Ok(Program(instructions))
    }

    /// The instructions, for the kernel.
    pub fn instructions(&self) -> &[Instruction] {
        &self.0
    }

    /// Bytes of the packet that are wanted: 0 for none of it. `length`: its bytes on the wire.
    pub fn run(&self, packet: &[u8], length: u32) -> u32 {
        let (mut a, mut x, mut words, mut at) = (0u32, 0u32, [0u32; WORDS], 0usize);
        let bytes = |from: u32, more: u32, size: usize| -> Option<u32> {
            let from = usize::try_from(u64::from(from) + u64::from(more)).ok()?;
            let bytes = packet.get(from..from.checked_add(size)?)?;
            Some(bytes.iter().fold(0, |all, byte| all << 8 | u32::from(*byte)))
        };
        while let Some(i) = self.0.get(at) {
            at += 1;
            let size = match i.code & 0x18 {
                0x00 => 4,
                0x08 => 2,
                _ => 1,
            };
            let right = if i.code & 8 != 0 { x } else { i.k };
            match (i.code & 7, i.code & 0xE0) {
                (6, _) => return if i.code & 0x10 != 0 { a } else { i.k },
                (5, _) => {
                    let yes = match i.code & 0xF0 {
                        0x00 => {
                            at += i.k as usize;
                            continue;
                        }
                        0x10 => a == right,
                        0x20 => a > right,
                        0x30 => a >= right,
                        _ => a & right != 0,
                    };
                    at += usize::from(if yes { i.jt } else { i.jf });
                }
                (4, _) => match calculate(i.code & 0xF0, a, right) {
                    Some(result) => a = result,
                    None => return 0, // division by zero
                },
                (7, _) if i.code & 0x80 != 0 => a = x,
                (7, _) => x = a,
                (2, _) => words[i.k as usize % WORDS] = a,
                (3, _) => words[i.k as usize % WORDS] = x,
                (1, 0x00) => x = i.k,
                (1, 0x60) => x = words[i.k as usize % WORDS],
                (1, 0x80) => x = length,
                (1, _) => match bytes(i.k, 0, 1) {
                    Some(byte) => x = (byte & 15) * 4,
                    None => return 0,
                },
                (_, 0x00) => a = i.k,
                (_, 0x60) => a = words[i.k as usize % WORDS],
                (_, 0x80) => a = length,
                (_, mode) => match bytes(i.k, if mode == 0x40 { x } else { 0 }, size) {
                    Some(loaded) => a = loaded,
                    None => return 0,
                },
            }
        }
        0
    }
}

fn calculate(operation: u16, a: u32, b: u32) -> Option<u32> {
    Some(match operation {
        0x00 => a.wrapping_add(b),
        0x10 => a.wrapping_sub(b),
        0x20 => a.wrapping_mul(b),
        0x30 => a.checked_div(b)?,
        0x40 => a | b,
        0x50 => a & b,
        0x60 => a.checked_shl(b).unwrap_or(0),
        0x70 => a.checked_shr(b).unwrap_or(0),
        0x80 => a.wrapping_neg(),
        0x90 => a.checked_rem(b)?,
        _ => a ^ b,
    })
}

/// An expression: a program for each kind of link, or why there is none for it.
#[derive(Debug, Clone, Default)]
pub struct Filter(pub Vec<(Link, std::result::Result<Program, String>)>);

impl Filter {
    /// Whether a packet is wanted.
    ///
    /// # Errors
    /// `usage`: the expression has no meaning for its kind of link.
    pub fn wants(&self, packet: &Packet<'_>) -> Result<bool> {
        // The address family of loopback packets is in the byte order of one machine or another: IP tells itself which it is.
        let (link, from) = match packet.link {
            Link::Null => (Link::Raw, FAMILY),
            link => (link, 0),
        };
        match self.0.iter().find(|(of, _)| *of == link) {
            Some((_, Ok(program))) => Ok(program.run(packet.data.get(from..).unwrap_or(&[]), packet.wire_len) != 0),
            Some((_, Err(why))) => Err(Error::new(Kind::Usage, "the filter has no meaning for these packets")
                .detail(format!("{}: {why}", link.name()))),
            None => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(all: &[(u16, u8, u8, u32)]) -> Result<Program> {
        Program::new(all.iter().map(|&(code, jt, jf, k)| Instruction { code, jt, jf, k }).collect())
    }

    /// What `tcpdump -d` says of "tcp[13] & 7 != 0 or len > 100", and arithmetic.
    #[test]
    fn loads_jumps_memory_and_arithmetic_do_what_the_kernel_does() {
        let run = |all: &[(u16, u8, u8, u32)], packet: &[u8]| program(all).map(|p| p.run(packet, 100));
        let packet = [0x45, 1, 2, 3, 4, 5, 6, 7];
        for (steps, wanted) in [
            (vec![(0x20, 0, 0, 1)], 0x0102_0304),
            (vec![(0x28, 0, 0, 6)], 0x0607),
            (vec![(0x28, 0, 0, 7)], 0), // beyond the packet: not wanted
            (vec![(0x20, 0, 0, u32::MAX)], 0),
            (vec![(0xB1, 0, 0, 0), (0x87, 0, 0, 0)], 20),
            (vec![(0x01, 0, 0, 3), (0x50, 0, 0, 2)], 5),
            (vec![(0x80, 0, 0, 0)], 100),
            (vec![(0x00, 0, 0, 9), (0x02, 0, 0, 15), (0x61, 0, 0, 15), (0x00, 0, 0, 5), (0x0C, 0, 0, 0)], 14),
            (vec![(0x00, 0, 0, 9), (0x01, 0, 0, 0), (0x3C, 0, 0, 0)], 0), // by zero
            (vec![(0x00, 0, 0, 9), (0x94, 0, 0, 4)], 1),
            (vec![(0x00, 0, 0, 1), (0x01, 0, 0, 40), (0x6C, 0, 0, 0)], 0),
            (vec![(0x00, 0, 0, 7), (0x15, 0, 1, 7), (0x00, 0, 0, 1)], 1),
            (vec![(0x00, 0, 0, 8), (0x15, 0, 1, 7), (0x00, 0, 0, 1)], 8),
            (vec![(0x00, 0, 0, 8), (0x05, 0, 0, 1), (0x00, 0, 0, 1)], 8),
        ] {
            let all = [&steps[..], &[(0x16, 0, 0, 0)]].concat();
            assert_eq!(run(&all, &packet).ok(), Some(wanted), "{steps:x?}");
        }
    }

    /// Programs of any instructions are refused, or end with an answer for any packet.
    #[test]
    fn any_program_is_refused_or_ends() {
        let mut random = 42u64;
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let codes = [
            0x00, 0x20, 0x28, 0x30, 0x40, 0x48, 0x50, 0x60, 0x80, 0x01, 0x61, 0x81, 0xB1, 0x02, 0x03, 0x04, 0x0C, 0x14,
            0x24, 0x34, 0x3C, 0x44, 0x54, 0x64, 0x6C, 0x74, 0x7C, 0x84, 0x94, 0x9C, 0xA4, 0x05, 0x15, 0x1D, 0x25, 0x35,
            0x45, 0x06, 0x16, 0x07, 0x87,
        ];
        let (mut ran, packet) = (0, [0xA5; 60]);
        for _ in 0..200_000 {
            let length = 1 + next(6);
            let mut all: Vec<_> = (0..length)
                .map(|_| {
                    let k = [next(20), next(1 << 32)][next(5).min(1) as usize ^ 1] as u32;
                    (codes[next(codes.len() as u64) as usize], next(4) as u8, next(4) as u8, k)
                })
                .collect();
            all.push((0x16, 0, 0, 0));
            if let Ok(program) = program(&all) {
                ran += 1;
                program.run(&packet[..next(61) as usize], 60);
            }
        }
        assert!(ran > 10_000, "{ran}");
    }

    #[test]
    fn a_program_that_leaves_its_bounds_is_none() {
        let end = (0x06, 0, 0, 1);
        for bad in [
            vec![],
            vec![(0x00, 0, 0, 1)],
            vec![(0x15, 1, 0, 1), end],
            vec![(0x05, 0, 0, u32::MAX), end],
            vec![(0x60, 0, 0, 16), end],
            vec![(0x34, 0, 0, 0), end],
            vec![(0xFF, 0, 0, 0), end],
            vec![end; MOST + 1],
        ] {
            assert!(program(&bad).is_err(), "{bad:x?}");
        }
    }
}
