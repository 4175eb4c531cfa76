//! Values of expressions: what pgbench knows, and how one kind becomes another.

use std::ffi::CString;

/// What an expression gives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// SQL's NULL.
    Null,
    /// Of comparisons and logic.
    Bool(bool),
    /// A bigint.
    Int(i64),
    /// A double.
    Double(f64),
}

/// An expression that has no value, in pgbench's words.
pub type Outcome<T> = Result<T, String>;

impl Value {
    fn kind(self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Int(_) => "int",
            Value::Double(_) => "double",
        }
    }

    /// Of a condition: what is not zero is true.
    pub fn is_true(self) -> bool {
        match self {
            Value::Null => false,
            Value::Bool(b) => b,
            Value::Int(i) => i != 0,
            Value::Double(d) => d != 0.0,
        }
    }

    pub(crate) fn bool(self) -> Outcome<bool> {
        match self {
            Value::Bool(b) => Ok(b),
            _ => Err(format!("cannot coerce {} to boolean", self.kind())),
        }
    }

    pub(crate) fn int(self) -> Outcome<i64> {
        match self {
            Value::Int(i) => Ok(i),
            Value::Double(d) => {
                let d = d.round_ties_even();
                let fits = (-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&d);
                if fits {
                    Ok(d as i64)
                } else {
                    Err(format!("double to int overflow for {}", percent_f(d)))
                }
            }
            _ => Err(format!("cannot coerce {} to int", self.kind())),
        }
    }

    pub(crate) fn double(self) -> Outcome<f64> {
        match self {
            Value::Double(d) => Ok(d),
            Value::Int(i) => Ok(i as f64),
            _ => Err(format!("cannot coerce {} to double", self.kind())),
        }
    }

    /// As the server gets it.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            Value::Null => out.extend_from_slice(b"NULL"),
            Value::Bool(b) => out.extend_from_slice(if b { b"true" } else { b"false" }),
            Value::Int(i) => write_int(out, i),
            Value::Double(d) => out.extend_from_slice(percent_g(d).as_bytes()),
        }
    }

    /// As `debug()` prints it.
    pub(crate) fn described(self) -> String {
        let mut text = Vec::new();
        self.write(&mut text);
        match self {
            Value::Null => "null".to_owned(),
            _ => format!("{} {}", self.kind(), String::from_utf8_lossy(&text)),
        }
    }

    /// Of a text that the server sent, or that was given on the command line.
    pub fn of_text(name: &str, text: &[u8]) -> Outcome<Value> {
        let malformed = || format!("malformed variable \"{name}\" value: \"{}\"", String::from_utf8_lossy(text));
        let said = std::str::from_utf8(text).map_err(|_| malformed())?;
        let begins = |whole: &str| whole.len() >= said.len() && whole[..said.len()].eq_ignore_ascii_case(said);
        if said.is_empty() {
            return Err(malformed());
        }
        // Beginnings count, but one letter for each of these words must tell it from the others.
        if said.eq_ignore_ascii_case("null") {
            return Ok(Value::Null);
        }
        if begins("true") || begins("yes") || said.eq_ignore_ascii_case("on") {
            return Ok(Value::Bool(true));
        }
        if begins("false") || begins("no") || said.eq_ignore_ascii_case("off") || said.eq_ignore_ascii_case("of") {
            return Ok(Value::Bool(false));
        }
        let number = said.trim_start_matches([' ', '\t', '\n', '\r', '\x0b', '\x0c']);
        let digits = number.strip_prefix(['+', '-']).unwrap_or(number);
        if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
            let out_of_range = |_| format!("value \"{said}\" is out of range for type bigint");
            return number.parse().map(Value::Int).map_err(out_of_range);
        }
        to_double(said).map(Value::Double).ok_or_else(malformed)
    }
}

/// As C's `strtod` reads the whole of a text; None if it does not, or if the number is too large.
pub(crate) fn to_double(text: &str) -> Option<f64> {
    let text = CString::new(text).ok()?;
    let mut end = std::ptr::null_mut();
    // SAFETY: the text ends with a zero byte, and `end` is set to a place in it.
    let value = unsafe { libc::strtod(text.as_ptr(), &mut end) };
    // SAFETY: `end` points into the text or at its last byte, which is zero.
    let whole = end.cast_const() != text.as_ptr() && unsafe { *end } == 0;
    let said_infinite = text.to_bytes().iter().any(|byte| matches!(byte, b'i' | b'I'));
    (whole && (said_infinite || !value.is_infinite())).then_some(value)
}

fn percent_g(value: f64) -> String {
    printed(c"%.15g", value)
}

fn percent_f(value: f64) -> String {
    printed(c"%f", value)
}

/// C's `printf` of a double: PostgreSQL prints with it, and nothing in Rust prints the same.
fn printed(format: &std::ffi::CStr, value: f64) -> String {
    let mut text = [0_u8; 400]; // %f of the largest double has 316 characters
                                // SAFETY: the format takes one double, and the length is that of the buffer.
    let length = unsafe { libc::snprintf(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), value) };
    let length = usize::try_from(length).unwrap_or(0).min(text.len() - 1);
    String::from_utf8_lossy(&text[..length]).into_owned()
}

/// Faster than `write!`: this runs for each parameter of each statement.
fn write_int(out: &mut Vec<u8>, value: i64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: Value) -> String {
        let mut out = Vec::new();
        value.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn values_are_written_as_pgbench_does() {
        for i in [0, 7, -7, 10, i64::MAX, i64::MIN, -100] {
            assert_eq!(text(Value::Int(i)), i.to_string());
        }
        assert_eq!(text(Value::Double(0.1 + 0.2)), "0.3");
        assert_eq!(text(Value::Double(1e100)), "1e+100");
        assert_eq!(text(Value::Double(-5.0)), "-5");
        assert_eq!(text(Value::Double(f64::NAN)), "nan");
        assert_eq!((text(Value::Null), text(Value::Bool(true))), ("NULL".into(), "true".into()));
    }

    #[test]
    fn texts_of_the_server_become_values() {
        let of = |text: &str| Value::of_text("v", text.as_bytes());
        for (said, value) in [
            ("null", Value::Null),
            ("T", Value::Bool(true)),
            ("ye", Value::Bool(true)),
            ("on", Value::Bool(true)),
            ("n", Value::Bool(false)),
            ("of", Value::Bool(false)),
            ("0012", Value::Int(12)),
            (" -3", Value::Int(-3)),
            ("1.50", Value::Double(1.5)),
            ("1e3", Value::Double(1000.0)),
            ("0x10", Value::Double(16.0)),
            ("inf", Value::Double(f64::INFINITY)),
        ] {
            assert_eq!(of(said), Ok(value), "{said}");
        }
        for said in ["", "o", "abc", "1 ", "12abc", "9223372036854775808", "1e999", "+"] {
            assert!(of(said).is_err(), "{said}");
        }
        assert!(Value::of_text("v", b"\xff").is_err());
    }

    #[test]
    fn doubles_round_to_even_and_overflow() {
        assert_eq!(Value::Double(2.5).int(), Ok(2));
        assert_eq!(Value::Double(-3.5).int(), Ok(-4));
        assert_eq!(Value::Double(9.3e18).int().unwrap_err(), "double to int overflow for 9300000000000000000.000000");
        assert!(Value::Double(f64::NAN).int().is_err());
        assert_eq!(Value::Bool(true).int().unwrap_err(), "cannot coerce boolean to int");
    }
}
