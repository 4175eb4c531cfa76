//! Texts of function-call traces folded into one tree: each node is a function below its callers, with a count and, where the trace has
//! times, how long. Calls of all threads come together. Memory grows with the number of different paths, not with the trace.
//!
//! [`line`] reads one line of each format, `tree` folds, [`fold`] reads a file piece by piece.

#![forbid(unsafe_code)]

mod line;
mod tree;

pub use line::Format;
pub use tree::{Node, Tree};

use leadline_errors::{Error, Kind, Result};
use std::io::BufRead;

/// Bytes of a line that are looked at. The rest of a longer one is skipped.
const LONGEST_LINE: usize = 64 * 1024;
/// No text has longer lines.
const NO_TEXT: u64 = 64 << 20;
/// Lines by which the format is recognised.
const SAMPLE: usize = 400;

/// Folds all lines. Without a format it is recognised from the first lines.
///
/// # Errors
/// `invalid` if no format has a line in the beginning; `storage` if reading fails.
pub fn fold(mut input: impl BufRead, format: Option<Format>, mut each: impl FnMut(u64) -> Result<()>) -> Result<Tree> {
    let mut waiting = Vec::new();
    let mut line = Vec::new();
    let mut bytes = 0_u64;
    let format = match format {
        Some(format) => format,
        None => {
            while waiting.len() < SAMPLE && read_line(&mut input, &mut line, &mut bytes)? {
                waiting.push(line.clone());
            }
            recognise(&waiting)?
        }
    };
    let mut tree = Tree::new(format);
    for line in &waiting {
        tree.add(line);
    }
    let mut told = 0;
    while read_line(&mut input, &mut line, &mut bytes)? {
        tree.add(&line);
        if bytes - told > 1 << 24 {
            told = bytes;
            each(bytes)?;
        }
    }
    tree.bytes = bytes;
    Ok(tree)
}

fn recognise(lines: &[Vec<u8>]) -> Result<Format> {
    let known = |format: Format| lines.iter().filter(|line| line::parse(format, line).is_call()).count();
    let best = Format::ALL.into_iter().map(|format| (known(format), format)).rev().max_by_key(|(count, _)| *count);
    match best {
        Some((count, format)) if count > 0 => Ok(format),
        _ => Err(Error::new(Kind::Invalid, "this is no function-call trace of a known format")
            .detail(format!("looked at the first {} lines", lines.len()))
            .hint("name it: --format pin, uftrace, uftrace-dump, ltrace or ftrace")),
    }
}

/// One line without its end; false at the end of the input.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>, bytes: &mut u64) -> Result<bool> {
    line.clear();
    let mut any = false;
    let begins = *bytes;
    loop {
        let piece = match input.fill_buf() {
            Ok(piece) => piece,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(Error::new(Kind::Storage, format!("the trace cannot be read: {e}"))),
        };
        if piece.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = memchr::memchr(b'\n', piece);
        let part = &piece[..end.unwrap_or(piece.len())];
        let room = LONGEST_LINE.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = end.map_or(piece.len(), |end| end + 1);
        input.consume(used);
        *bytes += used as u64;
        if *bytes - begins > NO_TEXT {
            return Err(Error::new(Kind::Invalid, "this is no text: a line has more than 64 MB"));
        }
        if end.is_some() {
            if line.last() == Some(&b'\r') {
                line.pop();
            }
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(format: Option<Format>, text: &str) -> Vec<String> {
        let tree = fold(text.as_bytes(), format, |_| Ok(())).expect("folded");
        let rows = tree.rows(usize::MAX).map(|(depth, node)| {
            let time = if node.timed { format!(" {} ns", node.total_ns) } else { String::new() };
            format!("{}{} {}{time}", "  ".repeat(depth), tree.name(node), node.count)
        });
        rows.chain((tree.unknown > 0).then(|| format!("unknown {}", tree.unknown))).collect()
    }

    #[test]
    fn pin() {
        let text = "         3 @@@ return underflow\n\
            Return 0x00007f225b355818 /lib64/libpthread.so.0:__read_nocancel+0x00000000000f returns: 0x151\n\
            \x20      152 Call 0x0cf00486 /x/bin/oracle:nioqrc+0x276 -> 0x05b2bdb0 /x/bin/oracle:_intel_fast_memcpy(0x7f, 0x7e, ...)\n\
            \x20      156 Tailcall 0x05b2bdbe /x/bin/oracle:_intel_fast_memcpy+0x0e -> 0x05b2bda0 /x/bin/oracle:_intel_fast_memcpy.P(0x7f, 0x7e, ...)\n\
            \x20      158 | Call 0x05b2bda1 /x/bin/oracle:_intel_fast_memcpy.P+0x01 -> 0x05b32990 /x/bin/oracle:__rep_memcpy(0x7f, 0x7e, ...)\n\
            \x20      172 | Return 0x05b34d77 /x/bin/oracle:__rep_memcpy+0x23e7 returns: 0x7f\n\
            \x20      174 Return 0x05b2bda7 /x/bin/oracle:_intel_fast_memcpy.P+0x07 returns: 0x7f\n";
        let expected = ["_intel_fast_memcpy 1", "_intel_fast_memcpy.P 1", "  __rep_memcpy 1"];
        assert_eq!(rows(None, text), expected);
    }

    #[test]
    fn pin_after_sed() {
        let text = " > kslwtectx(0x7ffe, 0x7f22, ...)\n | > sltrgftime64(0x7f, 0x7f, ...)\n | < sltrgftime64+0x5c returns: 0x68\n\
            \x20| > sltrgftime64(0x7f, 0x7f, ...)\n | | > clock_gettime@plt(0x1, 0x7f, ...)\n | < sltrgftime64+0x5c returns: 0x68\n\
            \x20< kslwtectx+0x3c0 returns: 0xe923\nwhat is this?\n > kslwtectx(0x7ffe, 0x7f22, ...)\n";
        assert_eq!(rows(None, text), ["kslwtectx 2", "  sltrgftime64 2", "    clock_gettime@plt 1", "unknown 1"]);
    }

    #[test]
    fn ltrace() {
        let text = "[pid 7] __libc_start_main(0x4, 1 <unfinished ...>\n[pid 7] qsort(0x7f, 2 <unfinished ...>\n\
            [pid 8] puts(\"a(b) = c\") = 3 <0.000010>\n[pid 7] strcmp(\"a\", \"b\") = -1 <0.000020>\n\
            [pid 7] <... qsort resumed> )  = <void> <0.001000>\n[pid 7] +++ exited (status 0) +++\n--- SIGCHLD (Child exited) ---\n";
        let expected = ["__libc_start_main 1", "  qsort 1 1000000 ns", "    strcmp 1 20000 ns", "puts 1 10000 ns"];
        assert_eq!(rows(None, text), expected);
    }

    #[test]
    fn ltrace_into_a_file() {
        let text = "7 12:30:01 qsort(0x7f, 2 <unfinished ...>\n8 12:30:01 puts(\"x\") = 2\n7 12:30:01 <... qsort resumed> ) = <void>\n";
        assert_eq!(rows(None, text), ["qsort 1", "puts 1"]);
    }

    #[test]
    fn ftrace() {
        let text =
            "# tracer: function_graph\n#\n 0)               |  sys_open() {\n 0)   1.382 us    |    getname();\n\
            \x201)   0.100 us    |  idle();\n 0)   0.618 us    |    getname();\n 0) + 54.100 us   |  }\n\
            \x20------------------------------------------\n 0)  bash-12  =>  foo-34\n";
        assert_eq!(rows(None, text), ["sys_open 1 54100 ns", "  getname 2 2000 ns", "idle 1 100 ns"]);
    }

    #[test]
    fn uftrace() {
        let text = "# DURATION     TID     FUNCTION\n            [ 12] | main() {\n   1.500 us [ 12] |   b(1, 2) = 3;\n\
            \x20           [ 12] |   a() {\n   2.000 ms [ 12] |   } /* a */\n            [ 12] |   /* linux:sched-out */\n\
            \x20  3.000 ms [ 12] | } = 0; /* main */\n";
        assert_eq!(rows(None, text), ["main 1 3000000 ns", "  b 1 1500 ns", "  a 1 2000000 ns"]);
        let dump = "# header\nreading 12.dat\n61.000000100     12: [entry] main(40089) depth: 0\n\
            61.000000200     12: [entry] a(4007) depth: 1\n61.000000300     12: [exit ] a(4007) depth: 1\n\
            61.000001100     12: [exit ] main(40089) depth: 0\n";
        assert_eq!(rows(None, dump), ["main 1 1000 ns", "  a 1 100 ns"]);
    }

    #[test]
    fn any_bytes() {
        let mut state = 1_u64;
        let words: [&[u8]; 16] = [
            b"[pid 9] ",
            b"> ",
            b" | ",
            b"f(",
            b") = 1",
            b"<... f resumed> ",
            b" us ",
            b"[entry] ",
            b"}",
            b"\xff",
            b"\n",
            b" depth: 9999999999",
            b"<1.5>",
            b" 0) ",
            b"Call ",
            b"-> 0x1 /a:g(",
        ];
        for format in Format::ALL {
            let mut text = Vec::new();
            for _ in 0..20_000 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.extend_from_slice(words[(state >> 60) as usize]);
            }
            assert!(fold(&text[..], Some(format), |_| Ok(())).is_ok());
        }
        assert!(fold(&b"\0\0\0"[..], None, |_| Ok(())).is_err());
    }
}
