//! Words of an expression.

use crate::names::in_name;
use crate::value::to_double;

/// A word.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    Int(i64),
    /// 9223372036854775808, which is a number only behind a minus.
    BeyondInt,
    Double(f64),
    Variable(String),
    /// A name of a function or a keyword, in small letters.
    Word(String),
    /// An operator, a parenthesis or a comma.
    Sign(&'static str),
}

/// Those of two characters first: the longest counts.
const SIGNS: [&str; 21] =
    ["<>", "!=", "<=", ">=", "<<", ">>", "+", "-", "*", "/", "%", "=", "<", ">", "|", "&", "#", "~", "(", ")", ","];

/// Words up to the end of the text, each with the place where it begins; or a message and the place of what is none.
pub(super) fn tokens(text: &str) -> Result<Vec<(usize, Token)>, (usize, String)> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &text[at..];
        let run = |from: usize, of: fn(u8) -> bool| from + bytes[from..].iter().take_while(|byte| of(**byte)).count();
        let digits = |from: usize| run(from, |byte| byte.is_ascii_digit());
        let (token, end) = match bytes[at] {
            byte if byte.is_ascii_whitespace() || byte == b'\x0b' => {
                at += 1;
                continue;
            }
            b'\\' if rest.starts_with("\\\n") || rest.starts_with("\\\r\n") => {
                at += 2 + usize::from(bytes[at + 1] == b'\r'); // the expression goes on in the next line
                continue;
            }
            b':' if bytes.get(at + 1).is_some_and(|byte| in_name(*byte)) => {
                let end = run(at + 1, in_name);
                (Token::Variable(text[at + 1..end].to_owned()), end)
            }
            b'0'..=b'9' | b'.' => match number(bytes, at, digits) {
                Some((end, is_int)) => (value(&text[at..end], is_int).map_err(|said| (at, said))?, end),
                None => return Err((at, "unexpected character (.)".to_owned())),
            },
            byte if in_name(byte) => {
                let end = run(at, in_name);
                (Token::Word(text[at..end].to_ascii_lowercase()), end)
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Token::Sign(sign), at + sign.len()),
                None => {
                    let character = rest.chars().next().unwrap_or_default();
                    return Err((at, format!("unexpected character ({})", character.escape_debug())));
                }
            },
        };
        found.push((at, token));
        at = end;
    }
    Ok(found)
}

/// The end of the number that begins here, and whether it is an integer.
fn number(bytes: &[u8], from: usize, digits: impl Fn(usize) -> usize) -> Option<(usize, bool)> {
    let mut end = digits(from);
    let mut is_int = true;
    if bytes.get(end) == Some(&b'.') {
        let fraction = digits(end + 1);
        if end == from && fraction == end + 1 {
            return None; // a dot alone
        }
        (end, is_int) = (fraction, false);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits((end + 1 + sign).min(bytes.len()));
        if exponent > end + 1 + sign {
            (end, is_int) = (exponent, false);
        }
    }
    Some((end, is_int))
}

fn value(text: &str, is_int: bool) -> Result<Token, String> {
    if !is_int {
        return to_double(text).map(Token::Double).ok_or_else(|| format!("double constant overflow ({text})"));
    }
    match text.parse() {
        Ok(value) => Ok(Token::Int(value)),
        Err(_) if text == "9223372036854775808" => Ok(Token::BeyondInt),
        Err(_) => Err(format!("bigint constant overflow ({text})")),
    }
}
