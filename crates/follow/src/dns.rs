//! The question and the code of a message of the name service (RFC 1035), as far as its first 512 bytes show them.

/// The port of name servers.
pub(crate) const PORT: u16 = 53;
pub(crate) const LONGEST: usize = 512;

/// Name asked for, and the code of an answer (0 fine, 2 server failure, 3 no such name, 5 refused); None for a question.
pub(crate) fn parse(message: &[u8]) -> Option<(String, Option<u8>)> {
    let flags = u16::from_be_bytes(message.get(2..4)?.try_into().ok()?);
    let questions = u16::from_be_bytes(message.get(4..6)?.try_into().ok()?);
    if questions == 0 {
        return None;
    }
    let mut name = String::new();
    let mut at = 12;
    while name.len() <= 255 {
        let length = usize::from(*message.get(at)?);
        if length == 0 {
            break;
        }
        if length > 63 {
            return None;
        }
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&crate::memory::text(message.get(at + 1..at + 1 + length)?));
        at += 1 + length;
    }
    let answer = flags & 0x8000 != 0;
    Some((name, answer.then_some((flags & 0xf) as u8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_answers_and_any_bytes() {
        let question = b"\x12\x34\x01\x00\x00\x01\0\0\0\0\0\0\x02db\x07example\x00\x00\x01\x00\x01";
        assert_eq!(parse(question), Some(("db.example".into(), None)));
        let mut answer = question.to_vec();
        answer[2..4].copy_from_slice(&[0x81, 0x83]);
        assert_eq!(parse(&answer), Some(("db.example".into(), Some(3))));
        for end in 0..question.len() {
            let _ = parse(&question[..end]);
        }
        for at in 0..question.len() {
            let mut odd = question.to_vec();
            odd[at] = 0xff;
            let _ = parse(&odd);
        }
    }
}
