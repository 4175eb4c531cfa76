//! Conditions as SQL writes them: `COLUMN OPERATOR VALUE` and `COLUMN IS [NOT] NULL`, joined by AND.

use std::cmp::Ordering;

use crate::names::quoted_part;
use leadline_errors::{Error, Kind, Result};

/// One condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Condition {
    pub column: String,
    pub test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Test {
    /// IS NULL; false: IS NOT NULL.
    IsNull(bool),
    Compare(Operator, Literal),
}

/// A value as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Literal {
    /// Without quotes: of SQL's own type for it, whatever the type of the column.
    Number(String),
    Bool(bool),
    /// In quotes: of the type of the column.
    Quoted(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operator {
    Equal,
    NotEqual,
    Less,
    NotGreater,
    Greater,
    NotLess,
}

/// Those that begin with the text of another come before it.
const OPERATORS: [(&str, Operator); 7] = [
    ("=", Operator::Equal),
    ("<>", Operator::NotEqual),
    ("!=", Operator::NotEqual),
    ("<=", Operator::NotGreater),
    ("<", Operator::Less),
    (">=", Operator::NotLess),
    (">", Operator::Greater),
];
/// Longer texts of what is not understood are not repeated as a whole.
const REPEATED: usize = 40;

impl Operator {
    /// Whether it is true of a value that compares so with the one it is given.
    pub(crate) fn holds(self, order: Ordering) -> bool {
        match self {
            Operator::Equal => order.is_eq(),
            Operator::NotEqual => order.is_ne(),
            Operator::Less => order.is_lt(),
            Operator::NotGreater => order.is_le(),
            Operator::Greater => order.is_gt(),
            Operator::NotLess => order.is_ge(),
        }
    }
}

/// # Errors
/// When the text is anything else.
pub(crate) fn parse(text: &str) -> Result<Vec<Condition>> {
    let mut rest = text.trim_start();
    let mut found = Vec::new();
    loop {
        let condition;
        (condition, rest) = one(rest)?;
        found.push(condition);
        if rest.is_empty() {
            return Ok(found);
        }
        rest = keyword(rest, "and").ok_or_else(|| expected("AND or the end", rest))?;
    }
}

fn expected(what: &str, rest: &str) -> Error {
    let found = match rest.char_indices().nth(REPEATED) {
        _ if rest.is_empty() => "the end".to_owned(),
        Some((at, _)) => format!("{}...", &rest[..at]),
        None => rest.trim_end().to_owned(),
    };
    Error::new(Kind::Usage, format!("cannot read the condition: expected {what}, found {found}"))
        .detail("a condition is COLUMN = VALUE (also <> < <= > >=), COLUMN IS NULL or COLUMN IS NOT NULL; AND joins several")
        .hint("write text, dates and times in single quotes, and the name of a column as in SQL")
}

fn one(text: &str) -> Result<(Condition, &str)> {
    let (column, rest) = column(text).ok_or_else(|| expected("the name of a column", text))?;
    if let Some(rest) = keyword(rest, "is") {
        let (wanted, rest) = keyword(rest, "not").map_or((true, rest), |rest| (false, rest));
        let rest = keyword(rest, "null").ok_or_else(|| expected("NULL", rest))?;
        return Ok((Condition { column, test: Test::IsNull(wanted) }, rest));
    }
    let operator = OPERATORS.iter().find_map(|(sign, operator)| Some((*operator, rest.strip_prefix(sign)?)));
    let (operator, rest) = operator.ok_or_else(|| expected("= <> < <= > >= or IS", rest))?;
    let rest = rest.trim_start();
    if keyword(rest, "null").is_some() {
        return Err(Error::new(Kind::Usage, "a comparison with NULL is never true")
            .hint(format!("to find nulls: {column} IS NULL")));
    }
    let (literal, rest) =
        literal(rest).ok_or_else(|| expected("a number, a value in single quotes, true or false", rest))?;
    Ok((Condition { column, test: Test::Compare(operator, literal) }, rest))
}

/// A word, in upper or lower case, and what is behind it.
fn keyword<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(word.len())?;
    (start.eq_ignore_ascii_case(word) && !rest.starts_with(is_of_name)).then(|| rest.trim_start())
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii()
}

/// A name as the server folds it.
fn column(text: &str) -> Option<(String, &str)> {
    if let Some(quoted) = text.strip_prefix('"') {
        let (name, rest) = quoted_part(quoted)?;
        return Some((name, rest.trim_start()));
    }
    let end = text.find(|c| !is_of_name(c)).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let begins = !name.is_empty() && !name.starts_with(|c: char| c.is_ascii_digit() || c == '$');
    begins.then(|| (name.to_ascii_lowercase(), rest.trim_start()))
}

fn literal(text: &str) -> Option<(Literal, &str)> {
    if let Some(quoted) = text.strip_prefix('\'') {
        let (value, rest) = text_in_quotes(quoted)?;
        return Some((Literal::Quoted(value), rest.trim_start()));
    }
    for (word, value) in [("true", true), ("false", false)] {
        if let Some(rest) = keyword(text, word) {
            return Some((Literal::Bool(value), rest));
        }
    }
    let (number, rest) = text.split_at(length_of_number(text)?);
    (!rest.starts_with(is_of_name)).then(|| (Literal::Number(number.to_owned()), rest.trim_start()))
}

/// A text with two single quotes for each that is in it, and what follows.
fn text_in_quotes(text: &str) -> Option<(String, &str)> {
    let (mut value, mut rest) = (String::new(), text);
    loop {
        let (before, after) = rest.split_once('\'')?;
        value.push_str(before);
        rest = after;
        match rest.strip_prefix('\'') {
            Some(after) => {
                value.push('\'');
                rest = after;
            }
            None => return Some((value, rest)),
        }
    }
}

/// How long the number is that a text begins with: digits, perhaps a sign, a point and an exponent.
fn length_of_number(text: &str) -> Option<usize> {
    let digits = |from: usize| text[from..].bytes().take_while(u8::is_ascii_digit).count();
    let start = usize::from(text.starts_with(['-', '+']));
    let whole = digits(start);
    let mut end = start + whole;
    let mut behind = 0;
    if text[end..].starts_with('.') {
        behind = digits(end + 1);
        end += 1 + behind;
    }
    if whole + behind == 0 {
        return None;
    }
    if text[end..].starts_with(['e', 'E']) {
        let sign = usize::from(text[end + 1..].starts_with(['-', '+']));
        let exponent = digits(end + 1 + sign);
        end += if exponent > 0 { 1 + sign + exponent } else { 0 };
    }
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of(text: &str) -> (String, Test) {
        let mut all = parse(text).unwrap();
        assert_eq!(all.len(), 1, "{text}");
        let Condition { column, test } = all.remove(0);
        (column, test)
    }

    #[test]
    fn conditions_are_read_as_in_sql() {
        let number = |n: &str| Literal::Number(n.into());
        let quoted = |n: &str| Literal::Quoted(n.into());
        for (text, column, operator, literal) in [
            ("A=1", "a", Operator::Equal, number("1")),
            (" \"A \"\"b\" <> -1.5e+3 ", "A \"b", Operator::NotEqual, number("-1.5e+3")),
            ("a!='it''s'", "a", Operator::NotEqual, quoted("it's")),
            ("größe <= ''", "größe", Operator::NotGreater, quoted("")),
            ("a<.5", "a", Operator::Less, number(".5")),
            ("a >= +7.", "a", Operator::NotLess, number("+7.")),
            ("a > TRUE", "a", Operator::Greater, Literal::Bool(true)),
            ("a=false ", "a", Operator::Equal, Literal::Bool(false)),
            ("isnull = 1", "isnull", Operator::Equal, number("1")),
        ] {
            assert_eq!(one_of(text), (column.into(), Test::Compare(operator, literal)), "{text}");
        }
        assert_eq!(one_of("a is\nnull"), ("a".into(), Test::IsNull(true)));
        assert_eq!(one_of("a IS  NOT NULL"), ("a".into(), Test::IsNull(false)));
        let all = parse("a=1 AND b IS NULL and c='and d=1'").unwrap();
        assert_eq!(all.iter().map(|c| c.column.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    }

    #[test]
    fn anything_else_is_an_error_that_says_where() {
        for (text, message) in [
            ("", "expected the name of a column, found the end"),
            ("1 = a", "expected the name of a column, found 1 = a"),
            ("a", "expected = <> < <= > >= or IS, found the end"),
            ("a like 'x'", "expected = <> < <= > >= or IS, found like 'x'"),
            ("t.a = 1", "expected = <> < <= > >= or IS, found .a = 1"),
            ("a = b", "expected a number, a value in single quotes, true or false, found b"),
            ("a = 'b", "expected a number, a value in single quotes, true or false, found 'b"),
            ("a = 1x", "expected a number, a value in single quotes, true or false, found 1x"),
            ("a=1AND b=2", "expected a number, a value in single quotes, true or false, found 1AND b=2"),
            ("a = -", "expected a number, a value in single quotes, true or false, found -"),
            ("a = 2024-01-01", "expected AND or the end, found -01-01"),
            ("a = 1 or b = 2", "expected AND or the end, found or b = 2"),
            ("a = 1 and", "expected the name of a column, found the end"),
            ("a is true", "expected NULL, found true"),
            ("\"a = 1", "expected the name of a column, found \"a = 1"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!(error.message, format!("cannot read the condition: {message}"), "{text}");
        }
        let long = format!("a = 1 {}", "é".repeat(100));
        assert!(parse(&long).unwrap_err().message.ends_with(&format!("found {}...", "é".repeat(40))));
        assert_eq!(parse("a = null").unwrap_err().hint, "to find nulls: a IS NULL");
    }
}
