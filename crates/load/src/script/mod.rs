//! pgbench's scripts: commands of SQL and of pgbench itself.

mod builtin;
pub mod expr;
mod meta;
mod scan;
mod token;

use leadline_errors::{Error, Kind, Result};

pub use builtin::{builtin, BUILTINS};
use expr::Expr;
use scan::{End, Scan};

use crate::names::{in_name, Names};

/// More parameters than pgbench takes in one statement.
const MOST_PARAMETERS: usize = 255;

/// A script, and how often it is chosen beside others.
#[derive(Debug, Clone)]
pub struct Script {
    /// As the user named it.
    pub name: String,
    /// Relative to the weights of the others.
    pub weight: u32,
    /// In order.
    pub commands: Vec<Command>,
}

/// A command of a script.
#[derive(Debug, Clone)]
pub enum Command {
    /// SQL.
    Sql(Sql),
    /// `\set`.
    Set {
        /// Number of the variable.
        name: usize,
        /// What it is set to.
        value: Expr,
    },
    /// `\if`: where to go on if it is false.
    If(Expr, usize),
    /// `\elif` behind a block that was not run: where to go on if it is false; and where, behind a block that was.
    Elif(Expr, usize, usize),
    /// `\else`: where to go on behind a block that was run.
    Else(usize),
    /// `\endif`.
    Endif,
    /// `\sleep`.
    Sleep(Amount, i64),
    /// `\startpipeline`.
    StartPipeline,
    /// `\syncpipeline`.
    SyncPipeline,
    /// `\endpipeline`.
    EndPipeline,
}

/// How long to sleep, in units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Amount {
    /// So many.
    Constant(i64),
    /// As a variable says.
    Variable(usize),
}

/// A statement of a script.
#[derive(Debug, Clone)]
pub struct Sql {
    /// As it stands in the script.
    pub text: String,
    /// Its line, from 1.
    pub line: u32,
    /// The text cut at variables, for the simple protocol.
    pub pieces: Vec<Piece>,
    /// With $1, $2 for variables.
    pub numbered: String,
    /// Variables of $1, $2.
    pub parameters: Vec<usize>,
    /// `\gset` and `\aset`.
    pub store: Option<Store>,
}

/// A part of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the script.
    Text(String),
    /// A variable: its number. If it is not set, its name stays.
    Variable(usize),
}

/// Where a result goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// Before the name of each column.
    pub prefix: String,
    /// `\aset`: results of all statements, where there are rows.
    pub all: bool,
}

impl Script {
    /// Reads a script. `name`: for errors and results.
    pub fn parse(name: &str, weight: u32, text: &str, names: &mut Names) -> Result<Script> {
        if text.contains('\0') {
            return Err(Error::new(Kind::Invalid, "the script has zero bytes").at(name));
        }
        let mut commands = Vec::new();
        let mut lines = Vec::new();
        let mut scan = Scan::new(text);
        loop {
            let (sql, begins, end) = scan.sql();
            let line = scan.line(begins);
            if let Some(sql) = statement(&sql, line, names, name)? {
                commands.push(Command::Sql(sql));
                lines.push(line);
            }
            if end == End::Backslash {
                let line = scan.line(scan.at);
                let rest = scan.rest_of_line();
                let wrong = |said: String| at_line(&said, name, line, rest);
                match meta::parse(rest, names).map_err(wrong)? {
                    None => {}
                    Some(meta::Meta::Store(store)) => match commands.last_mut() {
                        Some(Command::Sql(sql)) if sql.store.is_none() => sql.store = Some(store),
                        _ => return Err(wrong("\\gset and \\aset must follow an SQL command".to_owned())),
                    },
                    Some(meta::Meta::Command(command)) => {
                        commands.push(command);
                        lines.push(line);
                    }
                }
            }
            if end == End::Text {
                break;
            }
        }
        if commands.is_empty() {
            return Err(Error::new(Kind::Invalid, "the script has no commands").at(name));
        }
        branches(&mut commands).map_err(|(at, said)| {
            let line = lines.get(at).or(lines.last()).copied().unwrap_or(1);
            Error::new(Kind::Invalid, said).at(format!("{name}:{line}"))
        })?;
        Ok(Script { name: name.to_owned(), weight, commands })
    }

    /// What is said of each statement in results: its number among commands, its line and text.
    pub fn statements(&self) -> impl Iterator<Item = (usize, &Sql)> {
        self.commands.iter().enumerate().filter_map(|(at, command)| match command {
            Command::Sql(sql) => Some((at, sql)),
            _ => None,
        })
    }
}

fn at_line(said: &str, name: &str, line: u32, rest: &str) -> Error {
    Error::new(Kind::Invalid, said).detail(format!("\\{}", rest.trim_end())).at(format!("{name}:{line}"))
}

/// A statement; None of blanks and comments alone.
fn statement(text: &str, line: u32, names: &mut Names, script: &str) -> Result<Option<Sql>> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let (mut pieces, mut numbered, mut parameters) = (Vec::new(), String::new(), Vec::new());
    let mut from = 0;
    let mut at = 0;
    let bytes = text.as_bytes();
    while let Some(colon) = text[at..].find(':') {
        at += colon;
        let length = bytes[at + 1..].iter().take_while(|byte| in_name(**byte)).count();
        if length == 0 || bytes[at + 1].is_ascii_digit() {
            at += bytes[at..].iter().take_while(|byte| **byte == b':').count(); // ::type
            continue;
        }
        let number = names.number(&text[at + 1..at + 1 + length]);
        pieces.push(Piece::Text(text[from..at].to_owned()));
        pieces.push(Piece::Variable(number));
        parameters.push(number);
        if parameters.len() > MOST_PARAMETERS {
            let said = format!("the statement has more than {MOST_PARAMETERS} parameters");
            return Err(Error::new(Kind::Invalid, said).at(format!("{script}:{line}")));
        }
        numbered.push_str(&text[from..at]);
        numbered.push_str(&format!("${}", parameters.len()));
        at += 1 + length;
        from = at;
    }
    pieces.push(Piece::Text(text[from..].to_owned()));
    numbered.push_str(&text[from..]);
    Ok(Some(Sql { text: text.to_owned(), line, pieces, numbered, parameters, store: None }))
}

/// Finds for each branch where to go on. An error names the command that is wrong.
fn branches(commands: &mut [Command]) -> std::result::Result<(), (usize, String)> {
    // Of each open \if: its branches so far, and whether the last one is \else.
    let mut open: Vec<(Vec<usize>, bool)> = Vec::new();
    for at in 0..commands.len() {
        let (word, is_else) = match commands[at] {
            Command::If(..) => {
                open.push((vec![at], false));
                continue;
            }
            Command::Elif(..) => ("elif", false),
            Command::Else(_) => ("else", true),
            Command::Endif => {
                let (chain, _) = open.pop().ok_or_else(|| (at, "\\endif without matching \\if".to_owned()))?;
                for (number, branch) in chain.iter().enumerate() {
                    let following = chain.get(number + 1).copied().unwrap_or(at);
                    match &mut commands[*branch] {
                        Command::If(_, next) => *next = following,
                        Command::Elif(_, next, done) => (*next, *done) = (following, at),
                        Command::Else(done) => *done = at,
                        _ => {}
                    }
                }
                continue;
            }
            _ => continue,
        };
        let Some((chain, ended)) = open.last_mut() else {
            return Err((at, format!("\\{word} without matching \\if")));
        };
        if *ended {
            return Err((at, format!("\\{word} after \\else")));
        }
        *ended = is_else;
        chain.push(at);
    }
    match open.first() {
        Some((chain, _)) => Err((chain[0], "\\if without matching \\endif".to_owned())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Script> {
        Script::parse("s.sql", 1, text, &mut Names::default())
    }

    #[test]
    fn variables_become_parameters_and_casts_stay() {
        let script = parse("select :a, ':b', c::int, d::text::int, '12:30', :a::int;").unwrap();
        let Command::Sql(sql) = &script.commands[0] else { panic!() };
        assert_eq!(sql.numbered, "select $1, '$2', c::int, d::text::int, '12:30', $3::int;");
        assert_eq!(sql.parameters, [0, 1, 0]);
        assert_eq!(sql.pieces.len(), 7);
    }

    #[test]
    fn branches_know_where_to_go_on() {
        let script = parse("\\if 1\na;\n\\elif 2\nb;\n\\else\nc;\n\\endif\nd;").unwrap();
        let Command::If(_, next) = script.commands[0] else { panic!() };
        let Command::Elif(_, other, done) = script.commands[2] else { panic!() };
        let Command::Else(end) = script.commands[4] else { panic!() };
        assert_eq!((next, other, done, end), (2, 4, 6, 6));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, message, place) in [
            ("", "the script has no commands", "s.sql"),
            ("-- a comment\n", "the script has no commands", "s.sql"),
            ("a;\n\\else\nb;", "\\else without matching \\if", "s.sql:2"),
            ("a;\n\\if 1\nb;", "\\if without matching \\endif", "s.sql:2"),
            ("\\if 1\n\\else\n\\elif 1\n\\endif", "\\elif after \\else", "s.sql:3"),
            ("\\gset", "\\gset and \\aset must follow an SQL command", "s.sql:1"),
            ("a \\gset\n\\aset", "\\gset and \\aset must follow an SQL command", "s.sql:2"),
            ("a;\n\n\\set x 1 +", "syntax error", "s.sql:3"),
            ("\\nosuch", "invalid command \\nosuch", "s.sql:1"),
            ("\\sleep 1 h", "unrecognized time unit, must be us, ms or s (h)", "s.sql:1"),
            ("\\sleep x", "invalid sleep time, must be an integer (x)", "s.sql:1"),
            ("\\set 1a 5", "invalid variable name (1a)", "s.sql:1"),
        ] {
            let error = parse(text).unwrap_err();
            assert_eq!((error.message.as_str(), error.place.as_str()), (message, place), "{text}");
        }
        assert!(parse("\\setshell x date").unwrap_err().message.contains("shell"));
    }

    #[test]
    fn sleeps_take_their_unit_with_or_without_a_blank() {
        for (text, amount, unit) in [
            ("\\sleep 3", Amount::Constant(3), 1_000_000_000),
            ("\\sleep 3 us", Amount::Constant(3), 1_000),
            ("\\sleep 10ms", Amount::Constant(10), 1_000_000),
            ("\\sleep :x ms", Amount::Variable(0), 1_000_000),
            ("\\sleep :x", Amount::Variable(0), 1_000_000_000),
        ] {
            let script = parse(text).unwrap();
            let Command::Sleep(is, of) = &script.commands[0] else { panic!() };
            assert_eq!((is, *of), (&amount, unit), "{text}");
        }
    }

    #[test]
    fn the_built_in_scripts_are_scripts() {
        for name in BUILTINS {
            let text = builtin(name).unwrap();
            assert!(parse(text).unwrap().statements().count() > 0);
        }
    }
}
