//! What processes write to their outputs: the end of it is kept to be quoted, and each line is compared with the calls that failed.
//!
//! A name alone proves nothing: make names the target `install` whether or not a file of that name was looked for. A line speaks of a
//! failure if it has the path as the call had it and the system's text for the error, or less of both ([`TEXT`] to [`PATH`]). What goes
//! to /dev/null nobody was told.

use crate::calls::{Call, Class};
use crate::facts;
use crate::memory;
use crate::refused::{self, base, Refused};
use crate::state::{Recent, State};
use libc as c;

/// How clearly a line speaks of a failure. Not at all.
pub(crate) const NOT: u8 = 0;
/// The system's text for the error, and no other file's name.
pub(crate) const TEXT: u8 = 1;
/// The path, and a word for what failed.
pub(crate) const NAME: u8 = 2;
/// The last name of the path, and the text for the error.
pub(crate) const BASE: u8 = 3;
/// The path, and the text for the error.
pub(crate) const PATH: u8 = 4;

/// Bytes of one write that are looked at, and of all that are kept.
const HEARD: usize = 16 * 1024;
const SAID: usize = 4096;
const PRINTED: usize = 1024;
const LINE: usize = 1024;

/// Files that are read in order to say what failed.
pub(crate) fn is_of_messages(name: &[u8]) -> bool {
    [&b"/LC_MESSAGES/"[..], b"/gconv", b"/locale.alias"].iter().any(|part| holds(name, part))
}

/// A process has written to descriptor 1 or 2.
pub(crate) fn heard(f: &mut State, pid: i32, call: &Call, args: &[u64; 6]) {
    let fd = args[0] as i32;
    let words = match call.nr {
        c::SYS_write => {
            let skipped = args[2].saturating_sub(HEARD as u64);
            memory::read(pid, args[1].saturating_add(skipped), (args[2] as usize).min(HEARD))
        }
        c::SYS_writev => memory::gathered(pid, args[1], args[2], HEARD),
        _ => return,
    };
    let Some(to) = facts::descriptor(pid, fd).filter(|to| to != b"/dev/null" && !words.is_empty()) else { return };
    let error = fd == 2 || is_shell(pid) && facts::descriptor(pid, 2).as_ref() == Some(&to);
    let now = f.now_ns();
    let Some(running) = f.running.get_mut(&pid) else { return };
    let Some(at) = running.at else { return };
    let Some(begun) = running.lines.get_mut(usize::from(error)) else { return };
    begun.extend_from_slice(&words);
    let lines = match begun.iter().rposition(|byte| *byte == b'\n') {
        Some(end) => begun.drain(..=end).collect(),
        None => Vec::new(),
    };
    // A line without an end.
    let over = begun.len().saturating_sub(HEARD);
    begun.drain(..over);
    if let Some(process) = f.tree.processes.get_mut(at) {
        let (kept, most) = if error { (&mut process.said, SAID) } else { (&mut process.printed, PRINTED) };
        kept.extend_from_slice(&words);
        let over = kept.len().saturating_sub(most);
        kept.drain(..over);
        if error {
            process.said_ns = Some(now);
            process.said_to = to;
        } else {
            process.printed_ns = Some(now);
        }
    }
    for line in lines.split(|byte| *byte == b'\n') {
        speaks(f, pid, at, line, error);
    }
}

/// For `echo ... >&2` a shell makes its descriptor 1 a copy of 2, and writes to 1.
fn is_shell(pid: i32) -> bool {
    let program = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap_or_default();
    let name = program.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ["sh", "bash", "dash", "ash", "ksh", "ksh93", "mksh", "zsh", "busybox"].contains(&name)
}

/// The process ends: what it wrote last may have no end of line.
pub(crate) fn ended(f: &mut State, pid: i32) {
    let Some(running) = f.running.get_mut(&pid) else { return };
    let (Some(at), lines) = (running.at, std::mem::take(&mut running.lines)) else { return };
    for (line, error) in lines.iter().zip([false, true]) {
        speaks(f, pid, at, line, error);
    }
}

fn speaks(f: &mut State, pid: i32, at: usize, line: &[u8], error: bool) {
    let line = &line[..line.len().min(LINE)];
    if line.is_empty() {
        return;
    }
    let lower = line.to_ascii_lowercase();
    if let Some(process) = f.tree.processes.get_mut(at).filter(|p| error && p.first_error.is_empty()) {
        if holds(&lower, b"error") {
            process.first_error = line.to_vec();
        }
    }
    let program = f.tree.processes.get(at).map(|process| process.program.clone()).unwrap_or_default();
    let Some(running) = f.running.get(&pid).filter(|running| !running.recent.is_empty()) else { return };
    let plain = unquoted(line);
    let line_of = Line { words: &plain, lower: &lower, program: &program };
    let levels = running.recent.iter().enumerate().map(|(n, recent)| (line_of.speaks_of(recent), n));
    let Some((level, n)) = levels.max().filter(|(level, _)| *level > if error { NOT } else { NAME }) else { return };
    let Some(recent) = running.recent.get(n) else { return };
    let (ts_ns, kept) = (recent.ts_ns, recent.kept);
    let refused = Refused {
        call: recent.call,
        errno: recent.errno,
        path: Some(recent.name.clone()).filter(|name| recent.call.class != Class::Net || name.starts_with(b"/")),
        address: Some(String::from_utf8_lossy(&recent.name).into_owned()).filter(|_| recent.call.class == Class::Net),
        by_filter: false,
        detail: recent.detail.clone(),
    };
    let kept = kept.or_else(|| {
        let kept = refused::keep(f, pid, at, refused)?;
        f.tree.failures.get_mut(kept)?.ts_ns = ts_ns;
        Some(kept)
    });
    let now = f.now_ns();
    if let Some(failure) = kept.and_then(|kept| f.tree.failures.get_mut(kept)) {
        if level >= failure.said {
            failure.said = level;
            failure.line = line.to_vec();
        }
        failure.said_ns = Some(now);
    }
}

struct Line<'a> {
    /// Without the quotation marks of UTF-8.
    words: &'a [u8],
    lower: &'a [u8],
    program: &'a [u8],
}

impl Line<'_> {
    fn speaks_of(&self, recent: &Recent) -> u8 {
        let (path, last) = self.names(recent);
        match (says_error(self.lower, recent.errno), path, last) {
            (true, true, _) => PATH,
            (true, false, true) => BASE,
            (true, false, false) if self.is_alone(recent) => TEXT,
            (false, true, _) if says_absence(self.lower) && self.names_one_file() => NAME,
            _ => NOT,
        }
    }

    /// Whether it has the path as the call gave it or a longer part of it; and whether it has its last name alone.
    fn names(&self, recent: &Recent) -> (bool, bool) {
        let (name, given, last) = (recent.name.as_slice(), recent.given.as_slice(), base(&recent.name));
        if name.is_empty() {
            return (false, false);
        }
        if name.iter().chain(given).any(|byte| !is_of_name(*byte)) {
            let whole = [name, given].iter().any(|part| part.len() > 1 && holds(self.words, part));
            return (whole, last.len() > 1 && holds(self.words, last));
        }
        let (mut path, mut alone) = (false, false);
        for token in tokens(self.words) {
            let token = token.strip_prefix(b"./").unwrap_or(token);
            let given = given.strip_prefix(b"./").unwrap_or(given);
            let tail = token.contains(&b'/') && name.ends_with(token) && name.len() > token.len();
            let tail = tail && name.get(name.len() - token.len() - 1) == Some(&b'/');
            path |= token == name || token == given || tail;
            alone |= token == last && last.len() > 1;
        }
        (path, alone)
    }

    /// Of several files it is not clear which one is missing.
    fn names_one_file(&self) -> bool {
        let own = base(self.program);
        let is_file =
            |word: &&[u8]| word.iter().any(|byte| b"./".contains(byte)) && word.iter().any(u8::is_ascii_alphabetic);
        let mut files: Vec<&[u8]> = tokens(self.words).filter(is_file).filter(|word| base(word) != own).collect();
        files.dedup();
        files.len() <= 1
    }

    /// The line names no file at all, and this was the last call that failed so. Files that are missing are looked for all the time: for
    /// them, it must have been an attempt to open or to change one, and none may have been opened since.
    fn is_alone(&self, recent: &Recent) -> bool {
        let asked = recent.call.class == Class::Ask || recent.overtaken;
        let of_file = recent.name.starts_with(b"/");
        // Another name stands in quotation marks.
        if of_file && self.words.iter().filter(|byte| b"'\"`".contains(byte)).count() > 1 {
            return false;
        }
        if [c::ENOENT, c::ENOTDIR].contains(&recent.errno) && holds(&recent.name, b".so") {
            return false;
        }
        let own = base(self.program);
        let mut paths = tokens(self.words).filter(|token| token.contains(&b'/') && base(token) != own);
        !asked && paths.next().is_none()
    }
}

/// Bytes that words of a line consist of which may be names of files.
fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./+@~%#".contains(&byte) || byte >= 0x80
}

/// The words that may be names; a full stop at the end is the sentence's.
fn tokens(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let words = line.split(|byte| !is_of_name(*byte));
    words.map(|word| word.strip_suffix(b".").unwrap_or(word)).filter(|word| !word.is_empty())
}

/// With simple quotation marks instead of U+2018 to U+201D.
fn unquoted(line: &[u8]) -> Vec<u8> {
    let mut out = line.to_vec();
    for at in 0..out.len().saturating_sub(2) {
        if let [0xe2, 0x80, 0x98..=0x9d] = out[at..at + 3] {
            out[at..at + 3].copy_from_slice(b" ' ");
        }
    }
    out
}

fn holds(words: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && words.windows(part.len()).any(|window| window == part)
}

/// Words for the errors that libraries and programs use instead of the system's.
const OTHER_WORDS: &[(i32, &str)] = &[
    (c::ENOENT, "enoent"),
    (c::EACCES, "eacces"),
    (c::EPERM, "eperm"),
    (c::ENOSPC, "enospc"),
    (c::EMFILE, "emfile"),
    (c::ECONNREFUSED, "econnrefused"),
    (c::ECONNREFUSED, "couldn't connect"),
    (c::ECONNREFUSED, "could not connect"),
    (c::ECONNREFUSED, "failed to connect"),
    (c::ETIMEDOUT, "timed out"),
    (c::ETIMEDOUT, "etimedout"),
    (c::EADDRINUSE, "eaddrinuse"),
    (c::EADDRINUSE, "address in use"),
    (c::EADDRNOTAVAIL, "eaddrnotavail"),
    (c::EROFS, "erofs"),
    (c::EXDEV, "exdev"),
    (c::EBUSY, "ebusy"),
    (c::EBUSY, "is busy"),
    (c::ETXTBSY, "etxtbsy"),
    (c::ELOOP, "eloop"),
    (c::ELOOP, "too many symbolic links"),
    (c::ENAMETOOLONG, "enametoolong"),
    (c::E2BIG, "e2big"),
    (c::EISDIR, "eisdir"),
    (c::ENOTDIR, "enotdir"),
    (c::EFBIG, "efbig"),
    (c::ENOMEM, "out of memory"),
    (c::ENOMEM, "enomem"),
];

fn says_error(lower: &[u8], errno: i32) -> bool {
    holds(lower, error_text(errno).to_ascii_lowercase().as_bytes())
        || OTHER_WORDS.iter().any(|(other, word)| *other == errno && holds(lower, word.as_bytes()))
}

/// Words that say that something is not there or was refused, whatever the system's text is.
fn says_absence(lower: &[u8]) -> bool {
    const WORDS: [&str; 14] = [
        "not found",
        "no such",
        "not exist",
        "doesn't exist",
        "missing",
        "cannot",
        "can't",
        "could not",
        "couldn't",
        "unable to",
        "failed to",
        "denied",
        "not readable",
        "not writable",
    ];
    WORDS.iter().any(|word| holds(lower, word.as_bytes()))
}

/// As the C library says it in English.
fn error_text(errno: i32) -> String {
    let text = std::io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calls;
    use serde_json::Value;

    fn level(line: &str, nr: i64, errno: i32, name: &str, given: &str) -> u8 {
        let call = calls::find(nr).expect("followed");
        let (name, given) = (name.as_bytes().to_vec(), given.as_bytes().to_vec());
        let recent = Recent { call, errno, name, given, detail: Value::Null, ts_ns: 0, kept: None, overtaken: false };
        let (words, lower) = (unquoted(line.as_bytes()), line.as_bytes().to_ascii_lowercase());
        Line { words: &words, lower: &lower, program: b"/usr/bin/tool" }.speaks_of(&recent)
    }

    #[test]
    fn a_name_alone_proves_nothing() {
        let asked = |line, given: &str| level(line, c::SYS_stat, c::ENOENT, &format!("/src/{given}"), given);
        assert_eq!(asked("make: *** [Makefile:2: install] Error 1", "install"), NOT);
        assert_eq!(asked("make: *** [Makefile:4: foo.o] Error 1", "foo.o"), NOT);
        assert_eq!(asked("error: could not compile `foo`", "foo.o"), NOT);
        assert_eq!(asked("make: *** No rule to make target 'all'.  Stop.", "all"), NOT);
        assert_eq!(asked("cat: foo: No such file or directory", "foo"), PATH);
        assert_eq!(asked("ls: cannot access \u{2018}foo\u{2019}: No such file or directory", "foo"), PATH);
        assert_eq!(asked("sh: 0: cannot open foo: No such file", "foo"), NAME);
        assert_eq!(asked("unzip: cannot find x.zip or x.zip.ZIP, period.", "x.zip.ZIP"), NOT);
    }

    #[test]
    fn paths_and_their_last_names() {
        let opened = |line, given| level(line, c::SYS_openat, c::ENOENT, "/etc/app/main.conf", given);
        assert_eq!(opened("tool: /etc/app/main.conf: No such file or directory", "/etc/app/main.conf"), PATH);
        assert_eq!(opened("tool: main.conf: No such file or directory", "/etc/app/main.conf"), BASE);
        assert_eq!(opened("tool: app/main.conf: no such file or directory.", "/etc/app/main.conf"), PATH);
        assert_eq!(opened("tool: /other/main.conf: No such file or directory", "/etc/app/main.conf"), NOT);
        assert_eq!(opened("open: No such file or directory", "/etc/app/main.conf"), TEXT);
        assert_eq!(opened("Error: ENOENT, open '/etc/app/main.conf'", "/etc/app/main.conf"), PATH);
        assert_eq!(opened("tool: license expired", "/etc/app/main.conf"), NOT);
        assert_eq!(opened("FileNotFoundError: [Errno 2] No such file or directory: 'tool'", "/etc/app/main.conf"), NOT);
    }

    #[test]
    fn any_bytes() {
        for line in [&b""[..], b"\xe2\x80", b"\xe2\x80\x98", b"...", b"/", b"\0\xff/\xe2\x80\x99"] {
            let plain = unquoted(line);
            let _ = tokens(&plain).count();
        }
    }
}
