//! One line of each format: what is entered or left, in which thread, at which depth.
//!
//! Sources: Intel Pin's debugtrace tool, uftrace's replay and dump, ltrace(1), Documentation/trace/ftrace.rst (function_graph).

/// A format of trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// debugtrace of Intel Pin, as it is or shortened to `>`, `<` and `<>`.
    Pin,
    /// `uftrace replay`.
    Uftrace,
    /// `uftrace dump`.
    UftraceDump,
    /// ltrace, with -f, -S, -T, -n and times or without.
    Ltrace,
    /// The function_graph tracer of ftrace.
    Ftrace,
}

impl Format {
    /// All; where two know as many lines, the first is taken.
    pub const ALL: [Format; 5] = [Format::Pin, Format::UftraceDump, Format::Uftrace, Format::Ftrace, Format::Ltrace];

    /// As users name it.
    pub fn name(self) -> &'static str {
        match self {
            Format::Pin => "pin",
            Format::Uftrace => "uftrace",
            Format::UftraceDump => "uftrace-dump",
            Format::Ltrace => "ltrace",
            Format::Ftrace => "ftrace",
        }
    }
}

/// What a line says. `depth` is None where only the order tells. Names point into the line.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Line<'a> {
    Enter {
        thread: u64,
        depth: Option<usize>,
        name: &'a [u8],
        at_ns: Option<u64>,
    },
    /// `name` where the line has it: the call that ends is the nearest of that name.
    Leave {
        thread: u64,
        depth: Option<usize>,
        name: Option<&'a [u8]>,
        took_ns: Option<u64>,
        at_ns: Option<u64>,
    },
    /// Entered and left.
    Whole {
        thread: u64,
        depth: Option<usize>,
        name: &'a [u8],
        took_ns: Option<u64>,
    },
    /// Belongs to the format and is no call.
    Other,
    Unknown,
}

impl Line<'_> {
    pub(crate) fn is_call(&self) -> bool {
        !matches!(self, Line::Other | Line::Unknown)
    }
}

pub(crate) fn parse(format: Format, line: &[u8]) -> Line<'_> {
    if line.trim_ascii().is_empty() {
        return Line::Other;
    }
    let found = match format {
        Format::Pin => pin(line),
        Format::Uftrace => uftrace(line),
        Format::UftraceDump => dump(line),
        Format::Ltrace => ltrace(line),
        Format::Ftrace => ftrace(line),
    };
    found.unwrap_or(Line::Unknown)
}

fn find(line: &[u8], part: &[u8]) -> Option<usize> {
    memchr::memmem::find(line, part)
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits.trim_ascii()).ok()?.parse().ok()
}

/// Up to the arguments.
fn before_arguments(call: &[u8]) -> Option<&[u8]> {
    let name = call[..memchr::memchr(b'(', call)?].trim_ascii();
    (!name.is_empty()).then_some(name)
}

fn pin(line: &[u8]) -> Option<Line<'_>> {
    let mut rest = line.trim_ascii_start();
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    rest = rest[digits..].trim_ascii_start();
    let mut depth = 0;
    while let Some(after) = rest.strip_prefix(b"|") {
        depth += 1;
        rest = after.trim_ascii_start();
    }
    // "Return" without a count of instructions belongs to the underflow before it: its call began before the trace.
    if rest.starts_with(b"@@@") || (digits == 0 && depth == 0 && rest.starts_with(b"Return ")) {
        return Some(Line::Other);
    }
    let (enters, after) = [
        (true, &b"Call "[..]),
        (true, b"Tailcall "),
        (false, b"Return "),
        (true, b"> "),
        (true, b"<> "),
        (false, b"< "),
    ]
    .into_iter()
    .find_map(|(enters, word)| Some((enters, rest.strip_prefix(word)?)))?;
    let depth = Some(depth);
    if !enters {
        return Some(Line::Leave { thread: 0, depth, name: None, took_ns: None, at_ns: None });
    }
    let called = find(after, b" -> ").map_or(after, |at| &after[at + 4..]);
    let name = before_arguments(called)?;
    // "0x05b2bdb0 /path/of/file:name": a name may have colons of its own (C++), the path seldom has.
    let name = match name.strip_prefix(b"0x").and_then(|_| memchr::memchr(b' ', name)) {
        Some(blank) => {
            let place = &name[blank + 1..];
            memchr::memchr(b':', place).map_or(place, |colon| &place[colon + 1..])
        }
        None => name,
    };
    Some(Line::Enter { thread: 0, depth, name, at_ns: None })
}

/// `1.500 us`, with marks such as + and ! before it, as ns.
fn duration(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text
        .split_ascii_whitespace()
        .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()) || word.ends_with(['s', 'm', 'h']));
    let value: f64 = words.next()?.parse().ok()?;
    let unit = match words.next()? {
        "ns" => 1.0,
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" => 6e10,
        "h" => 3.6e12,
        _ => return None,
    };
    Some((value * unit).round() as u64)
}

/// What stands behind the bar of uftrace and ftrace: `name() {`, `name();`, `}`.
fn block(thread: u64, took_ns: Option<u64>, code: &[u8]) -> Option<Line<'_>> {
    let text = code.trim_ascii_start();
    let depth = Some((code.len() - text.len()) / 2);
    let text = text.trim_ascii_end();
    if text.starts_with(b"/*") || text.starts_with(b"=>") {
        return Some(Line::Other);
    }
    if text.starts_with(b"}") {
        return Some(Line::Leave { thread, depth, name: None, took_ns, at_ns: None });
    }
    let code = find(text, b" /*").map_or(text, |at| &text[..at]);
    let name = before_arguments(code)?;
    if code.ends_with(b"{") {
        return Some(Line::Enter { thread, depth, name, at_ns: None });
    }
    code.ends_with(b";").then_some(Line::Whole { thread, depth, name, took_ns })
}

fn uftrace(line: &[u8]) -> Option<Line<'_>> {
    if line.starts_with(b"#") {
        return Some(Line::Other);
    }
    let bar = find(line, b"] |")?;
    let open = memchr::memchr(b'[', &line[..bar])?;
    let thread = number(&line[open + 1..bar])?;
    block(thread, duration(&line[..open]), line.get(bar + 4..).unwrap_or_default())
}

fn dump(line: &[u8]) -> Option<Line<'_>> {
    if line.starts_with(b"#") || line.starts_with(b"uftrace ") || line.starts_with(b"reading ") {
        return Some(Line::Other);
    }
    let mut parts = line.splitn(2, |byte| *byte == b'[');
    let (head, tail) = (parts.next()?, parts.next()?);
    let mut words = head.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
    let mut time = words.next()?.splitn(2, |byte| *byte == b'.');
    let (seconds, fraction) = (number(time.next()?)?, time.next()?);
    let at_ns = seconds.checked_mul(1_000_000_000)?.checked_add(number(fraction).filter(|_| fraction.len() == 9)?)?;
    let thread = number(words.next()?.strip_suffix(b":")?)?;
    let close = memchr::memchr(b']', tail)?;
    let call = tail[close + 1..].trim_ascii();
    let depth =
        find(call, b" depth: ").and_then(|at| number(&call[at + 8..])).and_then(|depth| usize::try_from(depth).ok());
    match tail[..close].trim_ascii() {
        b"entry" => Some(Line::Enter { thread, depth, name: before_arguments(call)?, at_ns: Some(at_ns) }),
        b"exit" => Some(Line::Leave { thread, depth, name: None, took_ns: None, at_ns: Some(at_ns) }),
        _ => Some(Line::Other),
    }
}

fn ftrace(line: &[u8]) -> Option<Line<'_>> {
    if line.starts_with(b"#") || line.trim_ascii_start().starts_with(b"---") || find(line, b" => ").is_some() {
        return Some(Line::Other);
    }
    let close = memchr::memchr(b')', line)?;
    let thread = number(&line[..close])?;
    let bar = close + memchr::memchr(b'|', &line[close..])?;
    block(thread, duration(&line[close + 1..bar]), line.get(bar + 3..).unwrap_or_default())
}

fn ltrace(line: &[u8]) -> Option<Line<'_>> {
    let mut rest = line.trim_ascii();
    let mut thread = 0;
    if let Some(after) = rest.strip_prefix(b"[pid ") {
        let close = memchr::memchr(b']', after)?;
        thread = number(&after[..close])?;
        rest = after[close + 1..].trim_ascii();
    } else {
        // With -o a line begins with the number alone.
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0 && rest.get(digits) == Some(&b' ') {
            thread = number(&rest[..digits])?;
            rest = rest[digits..].trim_ascii_start();
        }
    }
    // Times of -r, -t, -tt and -ttt.
    let time = rest.iter().take_while(|byte| byte.is_ascii_digit() || b".:".contains(byte)).count();
    if time > 0 && rest.get(time) == Some(&b' ') {
        rest = rest[time..].trim_ascii_start();
    }
    if rest.starts_with(b"+++") || rest.starts_with(b"---") {
        return Some(Line::Other);
    }
    let took_ns = took(rest);
    if let Some(after) = rest.strip_prefix(b"<... ") {
        let name = &after[..find(after, b" resumed>")?];
        return Some(Line::Leave { thread, depth: None, name: Some(name), took_ns, at_ns: None });
    }
    let name = before_arguments(rest)?;
    // Calls of a library from another: libc.so.6->malloc; a blank in it is no name.
    if name.iter().any(u8::is_ascii_whitespace) {
        return None;
    }
    if rest.ends_with(b"<unfinished ...>") || rest.ends_with(b"<no return ...>") {
        return Some(Line::Enter { thread, depth: None, name, at_ns: None });
    }
    find(rest, b") ").and_then(|at| find(&rest[at..], b"= "))?;
    Some(Line::Whole { thread, depth: None, name, took_ns })
}

/// `<0.000123>` at the end, of -T, as ns.
fn took(line: &[u8]) -> Option<u64> {
    let inner = line.strip_suffix(b">")?;
    let open = memchr::memrchr(b'<', inner)?;
    let seconds: f64 = std::str::from_utf8(&inner[open + 1..]).ok()?.parse().ok()?;
    Some((seconds.clamp(0.0, 1e9) * 1e9).round() as u64)
}
