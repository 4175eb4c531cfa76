//! Messages out of a stream: each a head that says how long the body is, over any boundaries of segments.
//!
//! Of a body only the first bytes that a protocol asks for are kept, and only until the message ends.

/// A head has at most so many bytes.
const MOST_HEAD: usize = 8;
/// Bytes of a body that may be kept.
pub const MOST_KEPT: usize = 1024;

/// What a head says.
#[derive(Debug, Clone, Copy)]
pub struct Body {
    /// Bytes of the body.
    pub length: u64,
    /// How many of its first bytes are to be kept.
    pub keep: usize,
}

/// The stream is not what it was taken for, or bytes of it are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

/// A message that is complete.
#[derive(Debug)]
pub struct Message<'a> {
    /// Its head.
    pub head: &'a [u8],
    /// The first bytes of its body.
    pub body: &'a [u8],
    /// Bytes of its body.
    pub length: u64,
    /// The last four bytes of its body, if it has as many and they were captured.
    pub tail: Option<[u8; 4]>,
}

/// One direction of a protocol.
pub trait Messages {
    /// Bytes of the next head.
    fn head_length(&self) -> usize;
    /// What the head says; an error when there is no such message.
    fn body(&mut self, head: &[u8]) -> Result<Body, Lost>;
    /// A message is complete. Whether the framing goes on; no when the rest of the stream is something else.
    fn message(&mut self, message: &Message<'_>) -> bool;
}

/// How far the present message has come.
#[derive(Debug, Default)]
pub struct Frame {
    head: [u8; MOST_HEAD],
    head_done: usize,
    /// The body that is being read.
    body: Option<Partly>,
    kept: Vec<u8>,
}

#[derive(Debug)]
struct Partly {
    length: u64,
    left: u64,
    keep: usize,
    tail: [u8; 4],
    tail_known: usize,
}

impl Frame {
    /// No message is half read.
    pub fn at_start(&self) -> bool {
        self.head_done == 0 && self.body.is_none()
    }

    /// Forgets a message that was half read.
    pub fn reset(&mut self) {
        self.head_done = 0;
        self.body = None;
        self.kept.clear();
    }

    /// Reads on. `unseen` bytes that were not captured follow. Gives the bytes behind the end of the framing, if it ended.
    ///
    /// # Errors
    /// What comes cannot be read as messages; the frame is reset.
    pub fn feed<'a>(
        &mut self,
        mut bytes: &'a [u8],
        unseen: u32,
        on: &mut impl Messages,
    ) -> Result<Option<&'a [u8]>, Lost> {
        let lost = |frame: &mut Frame| {
            frame.reset();
            Err(Lost)
        };
        loop {
            if let Some(partly) = &mut self.body {
                let take = usize::try_from(partly.left).unwrap_or(usize::MAX).min(bytes.len());
                let (now, rest) = bytes.split_at(take);
                bytes = rest;
                let room = partly.keep.saturating_sub(self.kept.len());
                self.kept.extend_from_slice(&now[..now.len().min(room)]);
                for byte in &now[now.len().saturating_sub(4)..] {
                    partly.tail.rotate_left(1);
                    partly.tail[3] = *byte;
                    partly.tail_known = (partly.tail_known + 1).min(4);
                }
                partly.left -= take as u64;
                if partly.left > 0 {
                    break;
                }
                if !self.finish(on) {
                    return Ok(Some(bytes));
                }
                continue;
            }
            let wanted = on.head_length().min(MOST_HEAD);
            if self.head_done == 0 && bytes.len() >= wanted {
                // The way of most messages: all of it is in this piece.
                let (head, rest) = bytes.split_at(wanted);
                let Ok(body) = on.body(head) else { return lost(self) };
                if let Some(whole) = usize::try_from(body.length).ok().and_then(|length| rest.get(..length)) {
                    bytes = &rest[whole.len()..];
                    let keep = body.keep.min(MOST_KEPT).min(whole.len());
                    let tail = whole.last_chunk::<4>().copied();
                    if !on.message(&Message { head, body: &whole[..keep], length: body.length, tail }) {
                        return Ok(Some(bytes));
                    }
                    continue;
                }
                self.head[..wanted].copy_from_slice(head);
                self.head_done = wanted;
                self.begin(body);
                bytes = rest;
                continue;
            }
            let take = wanted.saturating_sub(self.head_done).min(bytes.len());
            let (now, rest) = bytes.split_at(take);
            self.head[self.head_done..self.head_done + take].copy_from_slice(now);
            self.head_done += take;
            bytes = rest;
            if self.head_done < wanted {
                break;
            }
            let Ok(body) = on.body(&self.head[..wanted]) else { return lost(self) };
            self.begin(body);
        }
        if unseen == 0 {
            return Ok(None);
        }
        let unseen = u64::from(unseen);
        let Some(partly) = &mut self.body else { return lost(self) };
        if partly.left < unseen {
            return lost(self);
        }
        partly.left -= unseen;
        partly.tail_known = 0;
        partly.keep = partly.keep.min(self.kept.len()); // what comes later is not the beginning
        if partly.left == 0 && !self.finish(on) {
            return Ok(Some(&[]));
        }
        Ok(None)
    }

    fn begin(&mut self, body: Body) {
        self.kept.clear();
        let keep = body.keep.min(MOST_KEPT);
        self.body = Some(Partly { length: body.length, left: body.length, keep, tail: [0; 4], tail_known: 0 });
    }

    fn finish(&mut self, on: &mut impl Messages) -> bool {
        let Some(partly) = self.body.take() else { return true };
        let tail = (partly.tail_known == 4).then_some(partly.tail);
        let head = &self.head[..self.head_done];
        let goes_on = on.message(&Message { head, body: &self.kept, length: partly.length, tail });
        self.reset();
        goes_on
    }
}
