//! Statement texts without their literals, and a hash of them: the key of a statement where the server computes none.
//!
//! One pass over the bytes. Literals become `$n`, numbered after the highest parameter of the text; a run of literals, or of
//! lists of literals, becomes its first followed by `, ...`; comments go, white space becomes one blank. Case and names stay. This is a reading aid and
//! a key, not a parser: text it does not understand (an unfinished string, cut by the server) ends as `...`.

/// A normalised statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Normalised {
    /// Text with literals replaced.
    pub text: String,
    /// FNV-1a over the text with `?` for each literal; never 0.
    pub fingerprint: i64,
}

/// What the scanner hands out.
enum Token<'a> {
    Blank,
    Literal,
    Text(&'a [u8]),
    /// The text ends inside a string or comment.
    Cut,
}

#[derive(Clone)]
struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The last token was a name, a number or a closing bracket: a following minus is an operator,
    operand_before: bool,
    /// unless the name is a word such as SELECT.
    word: &'a [u8],
}

/// Words after which a minus is a sign.
const BEFORE_SIGN: [&[u8]; 22] = [
    b"select",
    b"values",
    b"in",
    b"and",
    b"or",
    b"not",
    b"when",
    b"then",
    b"else",
    b"between",
    b"where",
    b"limit",
    b"offset",
    b"return",
    b"by",
    b"like",
    b"is",
    b"on",
    b"having",
    b"returning",
    b"default",
    b"set",
];

fn is_name_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b >= 0x80
}

fn is_name(b: u8) -> bool {
    is_name_start(b) || b.is_ascii_digit() || b == b'$'
}

impl<'a> Scanner<'a> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn skip_while(&mut self, test: impl Fn(u8) -> bool) {
        while self.at < self.bytes.len() && test(self.bytes[self.at]) {
            self.at += 1;
        }
    }

    fn sign_expected(&self) -> bool {
        !self.operand_before || BEFORE_SIGN.iter().any(|w| w.eq_ignore_ascii_case(self.word))
    }

    /// After the opening quote: past the closing one. False when the text ends first.
    fn skip_quoted(&mut self, quote: u8, backslash: bool) -> bool {
        while self.at < self.bytes.len() {
            let b = self.bytes[self.at];
            self.at += 1;
            if backslash && b == b'\\' {
                self.at = (self.at + 1).min(self.bytes.len());
            } else if b == quote {
                if self.peek(0) != quote {
                    return true;
                }
                self.at += 1;
            }
        }
        false
    }

    /// At `/*`: past the matching end; comments nest.
    fn skip_comment(&mut self) -> bool {
        let mut depth = 0;
        while self.at < self.bytes.len() {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return true;
                    }
                }
                _ => self.at += 1,
            }
        }
        false
    }

    /// At `$`: past a dollar-quoted string. None when it is not one.
    fn skip_dollar_quoted(&mut self) -> Option<bool> {
        let rest = &self.bytes[self.at..];
        let tag = rest[1..].iter().position(|&b| b == b'$')? + 2;
        if !rest[1..tag - 1].iter().all(|&b| is_name(b)) || rest[1].is_ascii_digit() {
            return None;
        }
        let (tag, body) = rest.split_at(tag);
        Some(match memchr::memmem::find(body, tag) {
            Some(end) => {
                self.at += tag.len() * 2 + end;
                true
            }
            None => false,
        })
    }

    fn skip_number(&mut self) {
        self.skip_while(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'.');
        if matches!(self.bytes.get(self.at.wrapping_sub(1)), Some(b'e' | b'E')) && matches!(self.peek(0), b'+' | b'-') {
            self.at += 1;
            self.skip_while(|b| b.is_ascii_digit());
        }
    }

    /// Past `, (literal, ...)`, as in the further rows of a VALUES list; stays when something else follows.
    fn skip_literal_list(&mut self) -> bool {
        let mut ahead = self.clone();
        let mut token = || loop {
            match ahead.next() {
                Some(Token::Blank) => {}
                other => return other,
            }
        };
        if !matches!(token(), Some(Token::Text(b","))) || !matches!(token(), Some(Token::Text(b"("))) {
            return false;
        }
        loop {
            if !matches!(token(), Some(Token::Literal)) {
                return false;
            }
            match token() {
                Some(Token::Text(b",")) => {}
                Some(Token::Text(b")")) => break,
                _ => return false,
            }
        }
        *self = ahead;
        true
    }

    fn next(&mut self) -> Option<Token<'a>> {
        let start = self.at;
        let first = *self.bytes.get(start)?;
        let literal = |whole: bool| Some(if whole { Token::Literal } else { Token::Cut });
        let word = if first.is_ascii_whitespace() || first == b'-' { self.word } else { b"" };
        self.word = word;
        match first {
            b if b.is_ascii_whitespace() => {
                self.skip_while(|b| b.is_ascii_whitespace());
                return Some(Token::Blank);
            }
            b'-' if self.peek(1) == b'-' => {
                self.skip_while(|b| b != b'\n');
                return Some(Token::Blank);
            }
            b'/' if self.peek(1) == b'*' => return Some(if self.skip_comment() { Token::Blank } else { Token::Cut }),
            b'\'' => {
                self.at += 1;
                self.operand_before = true;
                return literal(self.skip_quoted(b'\'', false));
            }
            b'e' | b'E' | b'b' | b'B' | b'x' | b'X' | b'n' | b'N' if self.peek(1) == b'\'' => {
                self.at += 2;
                self.operand_before = true;
                return literal(self.skip_quoted(b'\'', first.eq_ignore_ascii_case(&b'e')));
            }
            b'$' => {
                if let Some(whole) = self.skip_dollar_quoted() {
                    self.operand_before = true;
                    return literal(whole);
                }
                self.at += 1;
                self.skip_while(|b| b.is_ascii_digit());
                self.operand_before = true;
            }
            b'"' => {
                self.at += 1;
                self.operand_before = true;
                if !self.skip_quoted(b'"', false) {
                    return Some(Token::Cut);
                }
            }
            b if b.is_ascii_digit() || (b == b'.' && self.peek(1).is_ascii_digit()) => {
                self.skip_number();
                self.operand_before = true;
                return Some(Token::Literal);
            }
            b'-' if self.peek(1).is_ascii_digit() && self.sign_expected() => {
                self.at += 1;
                self.skip_number();
                self.operand_before = true;
                return Some(Token::Literal);
            }
            b if is_name_start(b) => {
                self.skip_while(is_name);
                self.operand_before = true;
                self.word = &self.bytes[start..self.at];
                return Some(Token::Text(self.word));
            }
            b => {
                self.at += 1;
                self.operand_before = matches!(b, b')' | b']');
            }
        }
        Some(Token::Text(&self.bytes[start..self.at]))
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// A quick hash of a raw text, eight bytes at a time: to know again a text seen before.
pub fn raw_hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let mut words = bytes.chunks_exact(8);
    let mut hash = mix(FNV_START, bytes.len() as u64);
    for word in &mut words {
        hash = mix(hash, u64::from_le_bytes([word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7]]));
    }
    words.remainder().iter().fold(hash, |hash, &b| mix(hash, u64::from(b)))
}

/// What the normalised text is made of.
enum Piece<'a> {
    Text(&'a [u8]),
    Literal,
    /// More literals, or lists of them, like the one before.
    More,
}

/// Walks the normalised pieces of a statement.
fn walk(bytes: &[u8], mut each: impl FnMut(Piece<'_>)) {
    let mut scanner = Scanner { bytes, at: 0, operand_before: false, word: b"" };
    let (mut started, mut blank, mut comma, mut after_literal) = (false, false, false, false);
    let (mut more, mut only_literals) = (false, false); // of the present run; since the last opening bracket
    while let Some(token) = scanner.next() {
        match token {
            Token::Blank => blank = true,
            Token::Text(b",") if after_literal && !comma => comma = true, // maybe a run of literals
            Token::Literal if after_literal && comma => {
                (comma, blank) = (false, false);
                if !std::mem::replace(&mut more, true) {
                    each(Piece::More);
                }
            }
            Token::Literal | Token::Text(_) | Token::Cut => {
                if std::mem::take(&mut comma) {
                    each(Piece::Text(b","));
                }
                if std::mem::take(&mut blank) && started {
                    each(Piece::Text(b" "));
                }
                started = true;
                more = false;
                after_literal = matches!(token, Token::Literal);
                match token {
                    Token::Text(text) => {
                        each(Piece::Text(text));
                        if text == b")" && only_literals && scanner.skip_literal_list() {
                            each(Piece::More);
                            while scanner.skip_literal_list() {}
                        }
                        only_literals = text == b"(";
                    }
                    Token::Literal => each(Piece::Literal),
                    _ => {
                        each(Piece::Text(b"..."));
                        break;
                    }
                }
            }
        }
    }
}

/// The key of a statement without building its text; how many literals a list has does not count. 0 only for an empty one.
pub fn fingerprint(bytes: &[u8]) -> i64 {
    let mut hash = FNV_START;
    walk(bytes, |piece| {
        hash = match piece {
            Piece::Text(text) => fnv(hash, text),
            Piece::Literal => fnv(hash, b"?"),
            Piece::More => hash,
        }
    });
    if hash == FNV_START {
        0
    } else {
        (hash as i64).max(i64::MIN + 1) | 1
    }
}

/// Text and key of a statement as the server shows it.
pub fn normalise(bytes: &[u8]) -> Normalised {
    let mut parameter = highest_parameter(bytes);
    let mut out = Vec::with_capacity(bytes.len());
    walk(bytes, |piece| match piece {
        Piece::Text(text) => out.extend_from_slice(text),
        Piece::Literal => {
            parameter += 1;
            out.extend_from_slice(format!("${parameter}").as_bytes());
        }
        Piece::More => out.extend_from_slice(b", ..."),
    });
    while out.last().is_some_and(|b| *b == b' ' || *b == b';') {
        out.pop();
    }
    Normalised { text: String::from_utf8_lossy(&out).into_owned(), fingerprint: fingerprint(bytes) }
}

fn highest_parameter(bytes: &[u8]) -> u32 {
    let mut highest = 0;
    walk(bytes, |piece| {
        if let Piece::Text([b'$', digits @ ..]) = piece {
            let number = std::str::from_utf8(digits).ok().and_then(|d| d.parse::<u32>().ok());
            highest = highest.max(number.unwrap_or(0).min(65_535));
        }
    });
    highest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(sql: &str) -> String {
        normalise(sql.as_bytes()).text
    }

    #[test]
    fn literals_go_names_stay() {
        for (sql, expected) in [
            (
                "SELECT abalance FROM pgbench_accounts WHERE aid = 4711;",
                "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
            ),
            ("insert into t1 (a) values ('it''s', -2.5e-3)", "insert into t1 (a) values ($1, ...)"),
            (
                "insert into t values (1, 'a'),\n(2, 'b') , (3,'c') returning id",
                "insert into t values ($1, ...), ... returning id",
            ),
            ("select f(1, now()), (2)", "select f($1, now()), ($2)"),
            ("select * from t where a in (1, 2,3) and b = $2", "select * from t where a in ($3, ...) and b = $2"),
            (
                "select a-1, col2 from \"T 1\" -- why\n where x=E'\\'x' /* a /* b */ */ ;",
                "select a-$1, col2 from \"T 1\" where x=$2",
            ),
            ("select $$body 'x'$$, $f$ y $f$", "select $1, ..."),
            ("alter role r password 'secret'", "alter role r password $1"),
            ("select 'cut by the serv", "select ..."),
            ("  \n select\t1  ", "select $1"),
            ("", ""),
        ] {
            assert_eq!(text(sql), expected, "{sql}");
        }
    }

    #[test]
    fn the_key_depends_on_the_shape_only() {
        let key = |s: &str| fingerprint(s.as_bytes());
        assert_eq!(key("select * from t where a = 1"), key("select  * from t where a = 'x'"));
        assert_eq!(key("select a from t where a in (1,2,3)"), key("select a from t where a in (4)"));
        assert_eq!(key("insert into t values (1)"), key("insert into t values (1), (2), (3)"));
        assert_ne!(key("select * from t where a = 1"), key("select * from u where a = 1"));
        assert_eq!(key(""), 0);
        assert_ne!(key("select 1"), 0);
    }

    #[test]
    fn raw_hashes_tell_texts_apart() {
        let texts: Vec<String> =
            (0..10_000).map(|i| format!("update t set a = {i} where b = {}", i * 7 % 13)).collect();
        let hashes: std::collections::HashSet<u64> = texts.iter().map(|t| raw_hash(t.as_bytes())).collect();
        assert_eq!(hashes.len(), texts.len());
        assert_ne!(raw_hash(b""), raw_hash(b"\0"));
    }

    #[test]
    fn any_bytes_end() {
        let mut seed = 7u64;
        for _ in 0..20_000 {
            let bytes: Vec<u8> = (0..40)
                .map(|_| {
                    seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    b"'\"$-/*E1a, ().;\\\n\xff\x00"[(seed >> 33) as usize % 19]
                })
                .collect();
            normalise(&bytes);
        }
    }
}
