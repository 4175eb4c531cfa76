//! Messages that a client sends.

/// Messages to be sent together.
#[derive(Default)]
pub struct Out(pub Vec<u8>);

/// Asks whether the server speaks TLS.
pub const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

impl Out {
    /// Adds a message of this type; 0: without one, as at the start of a connection.
    pub fn message(self, kind: u8, body: &[u8]) -> Out {
        self.with(kind, |out| out.extend_from_slice(body))
    }

    /// A message whose body is written in place.
    fn with(mut self, kind: u8, body: impl FnOnce(&mut Vec<u8>)) -> Out {
        if kind != 0 {
            self.0.push(kind);
        }
        prefixed(&mut self.0, 4, body);
        self
    }

    /// Adds messages in place.
    pub fn append(&mut self, messages: impl FnOnce(Out) -> Out) {
        *self = messages(std::mem::take(self));
    }

    /// A simple query.
    pub fn query(self, sql: &[u8]) -> Out {
        self.query_of(|out| out.extend_from_slice(sql))
    }

    /// A simple query whose text is written in place.
    pub fn query_of(self, sql: impl FnOnce(&mut Vec<u8>)) -> Out {
        self.with(b'Q', |out| {
            sql(out);
            out.push(0);
        })
    }

    /// The types of parameters are left to the server.
    pub fn parse(self, name: &str, sql: &str) -> Out {
        self.with(b'P', |out| {
            text(out, name.as_bytes());
            text(out, sql.as_bytes());
            out.extend_from_slice(&[0; 2]);
        })
    }

    /// A portal of a statement without parameters, its columns as text.
    pub fn bind(self, portal: &str, name: &str) -> Out {
        self.bind_values(portal, name, 0, |_, _| false)
    }

    /// A portal of a statement with so many parameters, all as text. `value` appends the text of one, or says false of a NULL.
    pub fn bind_values(
        self,
        portal: &str,
        name: &str,
        count: u16,
        mut value: impl FnMut(&mut Vec<u8>, usize) -> bool,
    ) -> Out {
        self.with(b'B', |out| {
            text(out, portal.as_bytes());
            text(out, name.as_bytes());
            out.extend_from_slice(&[0; 2]);
            out.extend_from_slice(&count.to_be_bytes());
            for number in 0..usize::from(count) {
                let at = out.len();
                let mut is_there = false;
                prefixed(out, 0, |out| is_there = value(out, number));
                if !is_there {
                    out.truncate(at);
                    out.extend_from_slice(&(-1_i32).to_be_bytes());
                }
            }
            out.extend_from_slice(&[0; 2]);
        })
    }

    /// Asks for the columns of a portal.
    pub fn describe_portal(self, portal: &str) -> Out {
        self.with(b'D', |out| {
            out.push(b'P');
            text(out, portal.as_bytes());
        })
    }

    /// rows: at most so many, 0 for all.
    pub fn execute(self, portal: &str, rows: u32) -> Out {
        self.with(b'E', |out| {
            text(out, portal.as_bytes());
            out.extend_from_slice(&rows.to_be_bytes());
        })
    }

    /// Ends what the server does as one, and asks it to be ready.
    pub fn sync(self) -> Out {
        self.message(b'S', &[])
    }

    /// Refuses to send the data of a COPY.
    pub fn copy_fail(self, why: &str) -> Out {
        self.with(b'f', |out| text(out, why.as_bytes()))
    }

    /// Says good-bye.
    pub fn terminate(self) -> Out {
        self.message(b'X', &[])
    }
}

/// What `body` writes, behind its length; `counted`: bytes of the length that count themselves.
fn prefixed(out: &mut Vec<u8>, counted: usize, body: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - at - 4 + counted) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(0);
}

/// The first message of a connection.
pub fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = 196_608_u32.to_be_bytes().to_vec(); // version 3.0
    for (name, value) in parameters {
        text(&mut body, name.as_bytes());
        text(&mut body, value.as_bytes());
    }
    body.push(0);
    Out::default().message(0, &body).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_bytes_of_the_protocol() {
        assert_eq!(Out::default().sync().0, b"S\0\0\0\x04");
        assert_eq!(Out::default().execute("p", 7).0, b"E\0\0\0\x0ap\0\0\0\0\x07");
        assert_eq!(Out::default().parse("", "select 1").0, b"P\0\0\0\x10\0select 1\0\0\0");
        assert_eq!(Out::default().query(b"a").0, b"Q\0\0\0\x06a\0");
        assert_eq!(Out::default().describe_portal("").0, b"D\0\0\0\x06P\0");
        assert_eq!(startup(&[("user", "a")]), b"\0\0\0\x10\0\x03\0\0user\0a\0\0");
    }

    #[test]
    fn values_are_texts_behind_their_length_and_null_is_minus_one() {
        let out = Out::default().bind_values("", "s", 3, |out, number| {
            out.extend_from_slice([b"12".as_slice(), b"", b"never sent"][number]);
            number < 2
        });
        let values = b"\0\x03\0\0\0\x0212\0\0\0\0\xff\xff\xff\xff\0\0";
        assert_eq!(out.0, [b"B\0\0\0\x1b\0s\0\0\0".as_slice(), values].concat());
        assert_eq!(Out::default().bind("p", "s").0, b"B\0\0\0\x0ep\0s\0\0\0\0\0\0\0");
    }
}
