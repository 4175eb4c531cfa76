//! A program for the kernel's packet filter: TCP of some ports, from the IP header on.

use crate::filter::Instruction;

const LOAD_BYTE: u16 = 0x30;
const LOAD_HALF: u16 = 0x28;
const LOAD_HALF_AT_X: u16 = 0x48;
const LOAD_IP_LENGTH: u16 = 0xB1;
const SHIFT_RIGHT: u16 = 0x74;
const IF_EQUAL: u16 = 0x15;
const IF_BITS: u16 = 0x45;
const RETURN: u16 = 0x06;
const TCP: u32 = 6;
/// Headers in front of TCP in IPv6, among them that of a fragment: such packets are passed on, to be looked at here.
const EXTENSIONS: [u32; 4] = [0, 43, 44, 60];

/// Most ports that one filter may have: jumps reach 255 instructions.
pub const MOST_PORTS: usize = 50;

/// Where a jump goes.
#[derive(Clone, Copy)]
enum To {
    Next,
    Accept,
    Drop,
    Six,
}

/// Accepts `snaplen` bytes of TCP packets from or to one of the ports, and fragments, whose ports cannot be seen.
pub fn tcp_ports(ports: &[u16], snaplen: u32) -> Vec<Instruction> {
    let ports = &ports[..ports.len().min(MOST_PORTS)];
    let mut four: Vec<(u16, u32, To, To)> = vec![
        (LOAD_BYTE, 0, To::Next, To::Next),
        (SHIFT_RIGHT, 4, To::Next, To::Next),
        (IF_EQUAL, 6, To::Six, To::Next),
        (IF_EQUAL, 4, To::Next, To::Drop),
        (LOAD_BYTE, 9, To::Next, To::Next),
        (IF_EQUAL, TCP, To::Next, To::Drop),
        (LOAD_HALF, 6, To::Next, To::Next),
        (IF_BITS, 0x1FFF, To::Accept, To::Next),
        (LOAD_IP_LENGTH, 0, To::Next, To::Next),
    ];
    for place in [0, 2] {
        four.push((LOAD_HALF_AT_X, place, To::Next, To::Next));
        four.extend(ports.iter().map(|port| (IF_EQUAL, u32::from(*port), To::Accept, To::Next)));
    }
    four.push((IF_EQUAL, u32::MAX, To::Drop, To::Drop));
    let six_at = four.len();
    let mut all = four;
    all.push((LOAD_BYTE, 6, To::Next, To::Next));
    all.extend(EXTENSIONS.map(|next| (IF_EQUAL, next, To::Accept, To::Next)));
    all.push((IF_EQUAL, TCP, To::Next, To::Drop));
    for place in [40, 42] {
        all.push((LOAD_HALF, place, To::Next, To::Next));
        all.extend(ports.iter().map(|port| (IF_EQUAL, u32::from(*port), To::Accept, To::Next)));
    }
    all.push((IF_EQUAL, u32::MAX, To::Drop, To::Drop));
    let (accept, drop) = (all.len(), all.len() + 1);
    let mut program: Vec<Instruction> = Vec::with_capacity(all.len() + 2);
    for (at, (code, k, yes, no)) in all.into_iter().enumerate() {
        let jump = |to: To| match to {
            To::Next => 0,
            To::Accept => (accept - at - 1) as u8,
            To::Drop => (drop - at - 1) as u8,
            To::Six => (six_at - at - 1) as u8,
        };
        program.push(Instruction { code, jt: jump(yes), jf: jump(no), k });
    }
    program.push(Instruction { code: RETURN, jt: 0, jf: 0, k: snaplen });
    program.push(Instruction { code: RETURN, jt: 0, jf: 0, k: 0 });
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::Program;

    fn v4(protocol: u8, fragment: u16, from: u16, to: u16) -> Vec<u8> {
        let mut bytes = vec![0; 44];
        (bytes[0], bytes[9]) = (0x46, protocol); // with four bytes of options
        bytes[6..8].copy_from_slice(&fragment.to_be_bytes());
        bytes[24..26].copy_from_slice(&from.to_be_bytes());
        bytes[26..28].copy_from_slice(&to.to_be_bytes());
        bytes
    }

    fn v6(next: u8, from: u16, to: u16) -> Vec<u8> {
        let mut bytes = vec![0; 60];
        (bytes[0], bytes[6]) = (0x60, next);
        bytes[40..42].copy_from_slice(&from.to_be_bytes());
        bytes[42..44].copy_from_slice(&to.to_be_bytes());
        bytes
    }

    #[test]
    fn packets_of_the_ports_pass_and_no_others() {
        for ports in [vec![5432], vec![1, 5432, 9], (5400..5400 + MOST_PORTS as u16).collect()] {
            let program = Program::new(tcp_ports(&ports, 999)).unwrap();
            for (packet, wanted) in [
                (v4(6, 0, 5432, 40000), 999),
                (v4(6, 0x4000, 40000, 5432), 999),
                (v4(6, 0, 40000, 5499), 0),
                (v4(17, 0, 5432, 5432), 0),
                (v4(6, 0x0003, 40000, 40000), 999),
                (v6(6, 5432, 40000), 999),
                (v6(6, 40000, 5432), 999),
                (v6(6, 40000, 40000), 0),
                (v6(17, 5432, 5432), 0),
                (v6(44, 0, 0), 999),
                (vec![0x15; 60], 0),
                (vec![0x45; 10], 0),
            ] {
                assert_eq!(program.run(&packet, packet.len() as u32), wanted, "{packet:?} with {} ports", ports.len());
            }
        }
    }
}
