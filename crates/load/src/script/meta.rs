//! Commands that begin with a backslash.

use super::expr::{self, Expr};
use super::{Amount, Command, Store};
use crate::names::{is_name, Names};

/// A command of its own, or what belongs to the SQL before it.
pub(super) enum Meta {
    Command(Command),
    Store(Store),
}

/// Reads what follows the backslash; None of nothing. An error is one line.
pub(super) fn parse(line: &str, names: &mut Names) -> Result<Option<Meta>, String> {
    let (word, rest) = first_word(line);
    let name = word.to_ascii_lowercase();
    let command = match name.as_str() {
        "" => return Ok(None),
        "set" => {
            let (variable, rest) = first_word(rest);
            if variable.is_empty() {
                return Err("missing argument".to_owned());
            }
            if !is_name(variable) {
                return Err(format!("invalid variable name ({variable})"));
            }
            let value = expression(rest, names)?;
            Command::Set { name: names.number(variable), value }
        }
        "if" => Command::If(expression(rest, names)?, 0),
        "elif" => Command::Elif(expression(rest, names)?, 0, 0),
        "sleep" => sleep(rest, names)?,
        "gset" | "aset" => {
            let words = words(rest);
            if words.len() > 1 {
                return Err("too many arguments".to_owned());
            }
            let prefix = words.first().copied().unwrap_or_default().to_owned();
            return Ok(Some(Meta::Store(Store { prefix, all: name == "aset" })));
        }
        "else" | "endif" | "startpipeline" | "syncpipeline" | "endpipeline" => {
            if !words(rest).is_empty() {
                return Err("unexpected argument".to_owned());
            }
            match name.as_str() {
                "else" => Command::Else(0),
                "endif" => Command::Endif,
                "startpipeline" => Command::StartPipeline,
                "syncpipeline" => Command::SyncPipeline,
                _ => Command::EndPipeline,
            }
        }
        "shell" | "setshell" => {
            return Err(format!("\\{name} is not run: a program that starts in the client disturbs what it measures"));
        }
        _ => return Err(format!("invalid command \\{word}")),
    };
    Ok(Some(Meta::Command(command)))
}

fn expression(text: &str, names: &mut Names) -> Result<Expr, String> {
    expr::parse(text, names).map_err(|(_, said)| said)
}

/// The first word and what follows it; a backslash at the end of a line is a blank.
fn first_word(text: &str) -> (&str, &str) {
    let blank = |at: usize| -> usize {
        let rest = &text[at..];
        match rest.chars().next() {
            Some(c) if c.is_ascii_whitespace() || c == '\x0b' => 1,
            Some('\\') if rest.starts_with("\\\n") => 2,
            Some('\\') if rest.starts_with("\\\r\n") => 3,
            _ => 0,
        }
    };
    let mut from = 0;
    while blank(from) > 0 {
        from += blank(from);
    }
    let mut end = from;
    while end < text.len() && blank(end) == 0 {
        end += text[end..].chars().next().map_or(1, char::len_utf8);
    }
    (&text[from..end], &text[end..])
}

fn words(mut text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    loop {
        let (word, rest) = first_word(text);
        if word.is_empty() {
            return found;
        }
        found.push(word);
        text = rest;
    }
}

fn sleep(rest: &str, names: &mut Names) -> Result<Command, String> {
    let words = words(rest);
    let (amount, unit) = match words[..] {
        [] => return Err("missing argument".to_owned()),
        [amount] => (amount, None),
        [amount, unit] => (amount, Some(unit)),
        _ => return Err("too many arguments".to_owned()),
    };
    let (amount, unit) = match amount.strip_prefix(':') {
        Some(name) if is_name(name) => (Amount::Variable(names.number(name)), unit),
        _ => {
            let digits = amount.strip_prefix(['+', '-']).unwrap_or(amount);
            let count = digits.bytes().take_while(u8::is_ascii_digit).count();
            let (number, behind) = amount.split_at(amount.len() - digits.len() + count);
            let unit = if behind.is_empty() { unit } else { Some(behind).filter(|_| unit.is_none()) };
            match number.parse() {
                Ok(value) if behind.is_empty() || unit.is_some() => (Amount::Constant(value), unit),
                _ => return Err(format!("invalid sleep time, must be an integer ({amount})")),
            }
        }
    };
    let nanoseconds = match unit.unwrap_or("s").to_ascii_lowercase().as_str() {
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        other => return Err(format!("unrecognized time unit, must be us, ms or s ({other})")),
    };
    Ok(Command::Sleep(amount, nanoseconds))
}
