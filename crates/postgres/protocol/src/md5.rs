//! MD5 (RFC 1321), for passwords that a server keeps in this form. It is broken for everything else.

const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The digest as 32 hexadecimal digits.
pub fn hex(parts: &[&[u8]]) -> String {
    digest(&parts.concat()).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut message = bytes.to_vec();
    message.push(0x80);
    while message.len() % 64 != 56 {
        message.push(0);
    }
    message.extend_from_slice(&(bytes.len() as u64 * 8).to_le_bytes());
    let constants: Vec<u32> = (1..=64).map(|i| (f64::from(i).sin().abs() * 4_294_967_296.0) as u32).collect();
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in message.chunks_exact(64) {
        let word = |i: usize| u32::from_le_bytes([block[4 * i], block[4 * i + 1], block[4 * i + 2], block[4 * i + 3]]);
        let [mut a, mut b, mut c, mut d] = state;
        for i in 0..64 {
            let (mix, k) = match i / 16 {
                0 => ((b & c) | (!b & d), i),
                1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
                2 => (b ^ c ^ d, (3 * i + 5) % 16),
                _ => (c ^ (b | !d), (7 * i) % 16),
            };
            let sum = mix.wrapping_add(a).wrapping_add(constants[i]).wrapping_add(word(k));
            (a, d, c, b) = (d, c, b, b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4])));
        }
        for (all, one) in state.iter_mut().zip([a, b, c, d]) {
            *all = all.wrapping_add(one);
        }
    }
    let mut out = [0; 16];
    for (to, word) in out.chunks_exact_mut(4).zip(state) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digests_of_rfc_1321() {
        for (text, expected) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ] {
            assert_eq!(hex(&[text.as_bytes()]), expected);
        }
    }

    #[test]
    fn every_length_around_a_block_is_padded_to_whole_blocks() {
        // md5sum of so many letters a
        for (n, expected) in [
            (55, "ef1772b6dff9a122358552954ad0df65"),
            (56, "3b0c8ac703f828b04c6c197006d17218"),
            (57, "652b906d60af96844ebd21b674f35e93"),
            (63, "b06521f39153d618550606be297466d5"),
            (64, "014842d480b571495a4a0363793f7367"),
            (65, "c743a45e0d2e6a95cb859adae0248435"),
        ] {
            assert_eq!(hex(&["a".repeat(n).as_bytes()]), expected, "{n}");
        }
    }
}
