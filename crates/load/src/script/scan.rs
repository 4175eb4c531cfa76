//! A script taken apart as psql's scanner does: SQL up to a semicolon or a backslash that stand outside of quotes, comments, parentheses
//! and bodies of functions.

use crate::names::in_name;

/// What ended a piece of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Semicolon,
    Backslash,
    Text,
}

/// The place in a script, and what must be remembered from one piece to the next.
pub(super) struct Scan<'a> {
    text: &'a str,
    pub(super) at: usize,
    parentheses: usize,
    words: Words,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str) -> Scan<'a> {
        Scan { text, at: 0, parentheses: 0, words: Words::default() }
    }

    /// The line of a place, from 1.
    pub(super) fn line(&self, at: usize) -> u32 {
        1 + self.text.as_bytes()[..at].iter().filter(|byte| **byte == b'\n').count() as u32
    }

    /// Up to the end of the line, which a backslash before it continues; without the end.
    pub(super) fn rest_of_line(&mut self) -> &'a str {
        let (from, bytes) = (self.at, self.text.as_bytes());
        while let Some(byte) = bytes.get(self.at) {
            let before = bytes[from..self.at].strip_suffix(b"\r").unwrap_or(&bytes[from..self.at]);
            if *byte == b'\n' && !before.ends_with(b"\\") {
                break;
            }
            self.at += 1;
        }
        let line = &self.text[from..self.at];
        self.at = (self.at + 1).min(self.text.len());
        line
    }

    /// The next SQL, where it begins, and what ended it. Blanks and line comments before it are left out.
    pub(super) fn sql(&mut self) -> (String, usize, End) {
        self.pass_blanks();
        let bytes = self.text.as_bytes();
        let mut sql = String::new();
        let begins = self.at;
        let mut from = begins; // what is before it is in `sql`
        let end = loop {
            let Some(byte) = bytes.get(self.at).copied() else { break End::Text };
            let next = bytes.get(self.at + 1).copied();
            match byte {
                b'\\' if matches!(next, Some(b';' | b':')) => {
                    sql.push_str(&self.text[from..self.at]);
                    from = self.at + 1;
                    self.at += 2;
                    if next == Some(b';') {
                        self.words = Words { depth: self.words.depth, ..Words::default() };
                    }
                }
                b'\\' => {
                    sql.push_str(&self.text[from..self.at]);
                    self.at += 1;
                    return (sql, begins, End::Backslash);
                }
                b';' => {
                    self.at += 1;
                    if self.parentheses == 0 && self.words.depth == 0 {
                        self.words = Words::default();
                        break End::Semicolon;
                    }
                }
                b'(' => {
                    self.parentheses += 1;
                    self.at += 1;
                }
                b')' => {
                    self.parentheses = self.parentheses.saturating_sub(1);
                    self.at += 1;
                }
                b'\'' => self.quoted(b'\'', false),
                b'"' => self.quoted(b'"', false),
                b'-' if next == Some(b'-') => self.at += self.length_of(|byte| byte != b'\n'),
                b'/' if next == Some(b'*') => self.comment(),
                b'$' => self.dollar_quoted(),
                byte if in_name(byte) && !byte.is_ascii_digit() => self.word(),
                byte if byte.is_ascii_digit() => self.at += self.length_of(|byte| in_name(byte) || byte == b'$'),
                _ => self.at += 1,
            }
        };
        sql.push_str(&self.text[from..self.at]);
        (sql, begins, end)
    }

    fn pass_blanks(&mut self) {
        loop {
            let rest = &self.text[self.at..];
            self.at += match rest.starts_with("--") {
                true => self.length_of(|byte| byte != b'\n'),
                false => self.length_of(|byte| byte.is_ascii_whitespace() || byte == b'\x0b'),
            };
            if self.text.len() - self.at == rest.len() {
                return;
            }
        }
    }

    fn length_of(&self, of: impl Fn(u8) -> bool) -> usize {
        self.text.as_bytes()[self.at..].iter().take_while(|byte| of(**byte)).count()
    }

    /// Passes over what is in quotes; two of them stand for one, which needs no care here: the next text begins where this one ends.
    fn quoted(&mut self, quote: u8, escapes: bool) {
        let bytes = self.text.as_bytes();
        self.at += 1;
        while let Some(byte) = bytes.get(self.at).copied() {
            self.at += 1;
            if byte == quote {
                return;
            }
            if escapes && byte == b'\\' {
                self.at += 1;
            }
        }
        self.at = self.at.min(bytes.len());
    }

    /// A comment in C's form, which may have others in it.
    fn comment(&mut self) {
        let bytes = self.text.as_bytes();
        let mut depth = 0;
        while self.at < bytes.len() {
            match &bytes[self.at..] {
                [b'/', b'*', ..] => {
                    depth += 1;
                    self.at += 2;
                }
                [b'*', b'/', ..] => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return;
                    }
                }
                _ => self.at += 1,
            }
        }
    }

    fn dollar_quoted(&mut self) {
        let rest = &self.text[self.at..];
        let inner = rest[1..].bytes().take_while(|byte| in_name(*byte)).count();
        let is_tag = rest.as_bytes().get(1 + inner) == Some(&b'$') && !rest.as_bytes()[1].is_ascii_digit();
        if !is_tag {
            self.at += 1; // $1, or a sign alone
            return;
        }
        let tag = &rest[..inner + 2];
        self.at += match rest[tag.len()..].find(tag) {
            Some(length) => length + 2 * tag.len(),
            None => rest.len(),
        };
    }

    /// An identifier or keyword; E before a quote makes a backslash escape in it.
    fn word(&mut self) {
        let length = self.length_of(|byte| in_name(byte) || byte == b'$');
        let word = &self.text[self.at..self.at + length];
        self.at += length;
        if word.eq_ignore_ascii_case("e") && self.text.as_bytes().get(self.at) == Some(&b'\'') {
            return self.quoted(b'\'', true);
        }
        self.words.add(word, self.parentheses == 0);
    }
}

/// The first words of a statement: in the body of CREATE FUNCTION ... BEGIN ATOMIC, a semicolon ends nothing.
#[derive(Default)]
struct Words {
    first: Vec<String>,
    depth: usize,
}

impl Words {
    fn add(&mut self, word: &str, outside: bool) {
        let word = word.to_ascii_lowercase();
        if self.first.len() < 4 && word.len() < 64 {
            self.first.push(word.clone());
        }
        let first: Vec<&str> = self.first.iter().map(String::as_str).collect();
        let routine = |word: &&str| matches!(*word, "function" | "procedure");
        let is_routine = match first[..] {
            ["create", "or", "replace", kind, ..] => routine(&kind),
            ["create", kind, ..] => routine(&kind),
            _ => false,
        };
        if is_routine && outside {
            match word.as_str() {
                "begin" => self.depth += 1,
                "case" if self.depth > 0 => self.depth += 1,
                "end" => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(text: &str) -> Vec<String> {
        let mut scan = Scan::new(text);
        let mut found = Vec::new();
        loop {
            let (sql, _, end) = scan.sql();
            if !sql.trim().is_empty() {
                found.push(sql);
            }
            if end == End::Backslash {
                found.push(format!("\\{}", scan.rest_of_line()));
            }
            if end == End::Text {
                return found;
            }
        }
    }

    #[test]
    fn statements_end_at_semicolons_that_stand_alone() {
        for (text, expected) in [
            ("select 1; select 2", vec!["select 1;", "select 2"]),
            ("select ';';select \";\";", vec!["select ';';", "select \";\";"]),
            ("select 'it''s;';", vec!["select 'it''s;';"]),
            ("select E'\\';';x;", vec!["select E'\\';';", "x;"]),
            ("select e.';';x;", vec!["select e.';';", "x;"]),
            ("select $$;$$, $a$ ; $$ ; $a$;", vec!["select $$;$$, $a$ ; $$ ; $a$;"]),
            ("select a$b$;c;", vec!["select a$b$;", "c;"]),
            ("select $1;b;", vec!["select $1;", "b;"]),
            ("/* ; /* ; */ ; */ a;b;", vec!["/* ; /* ; */ ; */ a;", "b;"]),
            ("-- a;b\nselect 1; -- c;\n", vec!["select 1;"]),
            ("select 1 -- a;b\n + 2;", vec!["select 1 -- a;b\n + 2;"]),
            ("create rule r as on insert to t do (a; b);c;", vec!["create rule r as on insert to t do (a; b);", "c;"]),
            ("select 1 \\; select 2;", vec!["select 1 ; select 2;"]),
            ("select 1 as a \\gset p_\nselect 2;", vec!["select 1 as a ", "\\gset p_", "select 2;"]),
            ("\\set a 1 + \\\n  2\nselect 1;", vec!["\\set a 1 + \\\n  2", "select 1;"]),
            (
                "create or replace function f() begin atomic select 1; select case when a then 1 end; end; x;",
                vec!["create or replace function f() begin atomic select 1; select case when a then 1 end; end;", "x;"],
            ),
            ("begin; end;", vec!["begin;", "end;"]),
            ("select 'never closed;", vec!["select 'never closed;"]),
            ("select $a$ never closed;", vec!["select $a$ never closed;"]),
            ("  \n\n", vec![]),
            ("-- only this", vec![]),
            ("é;ü", vec!["é;", "ü"]),
        ] {
            let found: Vec<String> = pieces(text).iter().map(|piece| piece.trim_start().to_owned()).collect();
            assert_eq!(found, expected, "{text}");
        }
    }

    #[test]
    fn any_text_comes_to_its_end() {
        for text in ["\\", "$", "$é$", "E'\\", "'", "--", "/*", "\\;", "\\\r\n", "e'\\é"] {
            pieces(text);
        }
    }
}
