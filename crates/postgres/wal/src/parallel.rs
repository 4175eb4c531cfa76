//! WAL read in chunks by several threads, whose results are put together in the order of the WAL.
//!
//! A chunk begins at any page: the page says how much of it belongs to a record that began before. Each worker ends the last
//! record of its chunk in the next one. Between chunks the same is checked as between records: the back link.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::Arc;
use std::time::Duration;

use crate::page::LONG;
use crate::reader::{Ending, Reader};
use crate::wal::{Range, Wal};
use leadline_datadir::Lsn;
use leadline_errors::{Error, Kind, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};

/// How often the caller's thread looks up: for its progress, and for whether to go on.
const LOOK: Duration = Duration::from_millis(100);

/// What a worker does with chunks.
pub trait Work {
    /// What it finds in one chunk.
    type Part: Send;
    /// Reads a chunk to its end.
    ///
    /// # Errors
    /// Those of [`Reader::next_record`].
    fn read(&mut self, reader: &mut Reader) -> Result<Self::Part>;

    /// Called after each chunk that the worker read, when it and all that were due have been merged: for work that need not be in turn.
    ///
    /// # Errors
    /// What ends the reading.
    fn after(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Reads a range with `threads` workers. Parts are given to `merge` in the order of the WAL, one at a time. `go_on` gets the
/// bytes done, now and then, and ends the work by saying false.
///
/// Gives how the whole range ended.
///
/// # Errors
/// Those of [`Reader::next_record`], and what `worker` and `merge` give.
pub fn run<W: Work>(
    log: &Arc<Wal>,
    range: Range,
    threads: usize,
    chunk_bytes: u64,
    worker: impl Fn() -> W + Sync,
    merge: impl FnMut(W::Part) -> Result<()> + Send,
    go_on: &mut dyn FnMut(u64) -> bool,
) -> Result<Ending> {
    let chunks = cut(log, range, chunk_bytes);
    let threads = threads.clamp(1, chunks.len().max(1));
    let turn = Turn { chunk: 0, waiting: BTreeMap::new(), ending: Ending::default(), next: range.from, merge };
    let shared = Shared {
        log,
        chunks: &chunks,
        lead: 2 * threads,
        next: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        turn: Mutex::new(turn),
        turned: Condvar::new(),
    };
    let (done, finished) = mpsc::channel();
    let outcome = std::thread::scope(|scope| {
        for _ in 0..threads {
            let (shared, worker, done) = (&shared, &worker, done.clone());
            scope.spawn(move || {
                let outcome = shared.work(&mut worker());
                if outcome.is_err() {
                    shared.stop();
                }
                let _ = done.send(outcome);
            });
        }
        drop(done);
        let mut first = Ok(());
        loop {
            let bytes = chunks.get(shared.turn().chunk).map_or(range.to.0, |c| c.from.0) - range.from.0;
            if !go_on(bytes) {
                shared.stop();
            }
            match finished.recv_timeout(LOOK) {
                Ok(outcome) => first = first.and(outcome),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break first,
            }
        }
    });
    outcome?;
    let ending = shared.turn().ending.clone();
    Ok(ending)
}

/// The range in pieces that begin at pages; compressed segments in one piece, since they are read from the front.
fn cut(log: &Wal, range: Range, chunk_bytes: u64) -> Vec<Range> {
    let step = if log.is_plain() { chunk_bytes.max(log.page_size) } else { chunk_bytes.max(log.segment_size) };
    let mut chunks = Vec::new();
    let mut from = range.from;
    while from < range.to {
        let to = Lsn((from.0 / step + 1) * step).min(range.to);
        chunks.push(Range { from, to });
        from = to;
    }
    chunks
}

struct Turn<P, M> {
    /// The chunk that is merged next.
    chunk: usize,
    /// Chunks that were read before their turn, with how they ended and where the record after their last one may begin.
    waiting: BTreeMap<usize, (Result<P>, Ending, Lsn)>,
    /// How the WAL ended so far.
    ending: Ending,
    /// Where the next record may begin: after a switch, at the beginning of the next segment.
    next: Lsn,
    merge: M,
}

struct Shared<'a, P, M> {
    log: &'a Arc<Wal>,
    chunks: &'a [Range],
    /// Most chunks read and not merged: what bounds the memory they take.
    lead: usize,
    next: AtomicUsize,
    stop: AtomicBool,
    turn: Mutex<Turn<P, M>>,
    turned: Condvar,
}

impl<P: Send, M: FnMut(P) -> Result<()> + Send> Shared<'_, P, M> {
    fn turn(&self) -> MutexGuard<'_, Turn<P, M>> {
        self.turn.lock()
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.turn()); // nobody is between looking at `stop` and waiting
        self.turned.notify_all();
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn work<W: Work<Part = P>>(&self, worker: &mut W) -> Result<()> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = self.chunks.get(number) else { return Ok(()) };
            let mut turn = self.turn();
            while number >= turn.chunk + self.lead && !self.stopped() {
                self.turned.wait(&mut turn);
            }
            drop(turn);
            if self.stopped() {
                return Ok(()); // an error of an earlier chunk, or the caller's wish, is what counts
            }
            let mut reader = Reader::of_chunk(self.log.clone(), *chunk);
            let part = worker.read(&mut reader);
            let mut turn = self.turn();
            turn.waiting.insert(number, (part, reader.ending().clone(), reader.position()));
            turn.merge_what_is_due(self.log, self.chunks)?;
            drop(turn);
            self.turned.notify_all();
            worker.after()?;
        }
    }
}

impl<P, M: FnMut(P) -> Result<()>> Turn<P, M> {
    fn merge_what_is_due(&mut self, log: &Arc<Wal>, chunks: &[Range]) -> Result<()> {
        while let Some((part, ending, next)) = self.waiting.remove(&self.chunk) {
            // Behind the end of the WAL there is what older log has left, damaged or not; so there may be behind a switch.
            let empty = chunks.get(self.chunk).is_some_and(|chunk| chunk.to <= self.next);
            if !empty && (self.ending.early.is_none() || part.is_ok()) {
                let part = part?;
                if join(log, &mut self.ending, &ending)? {
                    (self.merge)(part)?;
                    self.next = self.next.max(next);
                }
            }
            self.chunk += 1;
        }
        Ok(())
    }
}

/// Adds the ending of a chunk to that of all before it; false when the chunk is no part of it.
fn join(log: &Arc<Wal>, whole: &mut Ending, chunk: &Ending) -> Result<bool> {
    if chunk.first.0 != 0 {
        if let Some((lsn, reason)) = &whole.early {
            // A server that writes on had come so far when this place was read: the chunk is of a later time.
            if is_whole_now(log, *lsn) {
                return Ok(false);
            }
            return Err(Error::new(Kind::Invalid, format!("the WAL is damaged: {reason}"))
                .detail(format!("no valid record here, but there is one at {}", chunk.first))
                .hint(format!("the WAL before {lsn} can be read, and that from {} on", chunk.first))
                .at(log.place(lsn.0)));
        }
        if whole.last.0 != 0 && chunk.before != whole.last {
            return Err(Error::new(Kind::Invalid, "the WAL is damaged: a record does not follow the previous one")
                .detail(format!("xl_prev is {}, but the previous record starts at {}", chunk.before, whole.last))
                .at(log.place(chunk.first.0)));
        }
        if whole.first.0 == 0 {
            (whole.first, whole.before) = (chunk.first, chunk.before);
        }
        whole.last = chunk.last;
    }
    if whole.early.is_none() {
        if let (Some((lsn, _)), 0) = (&chunk.early, chunk.first.0) {
            // The WAL ends between two chunks, or a chunk begins with pages that were lost.
            Reader::new(log.clone(), Range { from: *lsn, to: log.bounds().to }).next_record()?;
        }
        whole.early.clone_from(&chunk.early);
    }
    Ok(true)
}

/// Whether a record can be read by now where there was none: there, or behind the header of the page that begins there.
fn is_whole_now(log: &Arc<Wal>, lsn: Lsn) -> bool {
    let mut reader = Reader::new(log.clone(), Range { from: lsn, to: Lsn(lsn.0 + LONG as u64 + 1) });
    matches!(reader.next_record(), Ok(Some(_)))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::kept::Kept;
    use crate::made::{Folder, Writer, MAGIC_18, PAGE, SEGMENT};

    /// Counts records, and after its first chunk has the rest of the WAL written.
    struct Count(Option<(Vec<PathBuf>, Vec<Vec<u8>>)>);

    impl Work for Count {
        type Part = u64;

        fn read(&mut self, reader: &mut Reader) -> Result<u64> {
            let mut count = 0;
            while reader.advance()? {
                count += 1;
            }
            for (path, bytes) in self.0.take().map(|(paths, all)| paths.into_iter().zip(all)).into_iter().flatten() {
                std::fs::write(path, bytes).unwrap();
            }
            Ok(count)
        }
    }

    /// WAL of three segments of which the first chunk, a segment, ends at `stop` while it is read.
    fn read_while_written(name: &str, stop: impl Fn(&mut [u8]), write: bool) -> (Result<Ending>, u64) {
        let folder = Folder::new(name);
        let mut writer = Writer::new(MAGIC_18, 1, 1);
        while writer.at < 4 * SEGMENT - 20_000 {
            writer.main(1, 10, 0, &[7; 9000]);
        }
        let paths = writer.store(&folder.0);
        let whole: Vec<Vec<u8>> = paths.iter().map(|path| std::fs::read(path).unwrap()).collect();
        let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
        let mut first = whole[0].clone();
        stop(&mut first);
        std::fs::write(&paths[0], first).unwrap();
        for (path, bytes) in paths[1..].iter().zip(&whole[1..]) {
            // Nothing of the others is there yet, or of the second all but its first page.
            let from = if write || path != &paths[1] { SEGMENT as usize * usize::from(write) } else { PAGE as usize };
            let mut bytes = bytes.clone();
            bytes[..from].fill(0);
            std::fs::write(path, bytes).unwrap();
        }
        let later = Mutex::new(write.then_some((paths, whole)));
        let mut seen = 0;
        let worker = || Count(later.lock().take());
        let merge = |count| {
            seen += count;
            Ok(())
        };
        let ending = run(&log, log.range(None, None).unwrap(), 1, SEGMENT, worker, merge, &mut |_| true);
        (ending, seen)
    }

    #[test]
    fn pages_lost_at_the_beginning_of_a_chunk_are_damage() {
        let folder = Folder::new("lost");
        let mut writer = Writer::new(MAGIC_18, 1, 1);
        for end in [2 * SEGMENT, 3 * SEGMENT] {
            while writer.at < end - 20_000 {
                writer.main(1, 10, 0, &[7; 900]);
            }
            writer.main(0, 0, 0x40, b""); // no record goes on in the next segment
        }
        let path = writer.store(&folder.0).remove(1);
        let whole = std::fs::read(&path).unwrap();
        for lost in [3 * PAGE, SEGMENT] {
            let mut bytes = whole.clone();
            bytes[..lost as usize].fill(0);
            std::fs::write(&path, bytes).unwrap();
            let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
            let mut records = 0;
            let merge = |count: u64| {
                records += count;
                Ok(())
            };
            let ending = run(&log, log.range(None, None).unwrap(), 2, SEGMENT, || Count(None), merge, &mut |_| true);
            match lost {
                SEGMENT => assert!(ending.unwrap().early.is_some() && records > 1000, "{records} records"),
                _ => assert!(ending.unwrap_err().message.starts_with("the WAL is damaged")),
            }
        }
    }

    #[test]
    fn chunks_within_a_long_record_have_nothing_to_say() {
        let folder = Folder::new("within");
        let mut writer = Writer::new(MAGIC_18, 1, 1);
        for n in 0..9 {
            writer.main(n, 10, 0, &vec![7; 300_000 * (n as usize % 3)]);
            writer.main(n, 10, 0, &[7; 100]);
        }
        writer.store(&folder.0);
        let kept = Kept { front: 2000, main: 1000, piece: 100 };
        let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap().keeping(kept));
        for threads in [1, 2, 3] {
            let mut records = 0;
            let merge = |count: u64| {
                records += count;
                Ok(())
            };
            let range = log.range(None, None).unwrap();
            let ending = run(&log, range, threads, 2 * PAGE, || Count(None), merge, &mut |_| true).unwrap();
            assert_eq!((records, ending.last.0, ending.early.unwrap().0 .0), (18, writer.prev, writer.at));
        }
    }

    #[test]
    fn what_a_switch_leaves_empty_is_no_damage() {
        let folder = Folder::new("switch");
        let mut writer = Writer::new(MAGIC_18, 1, 1);
        for _ in 0..3 {
            for _ in 0..200 {
                writer.main(1, 10, 0, &[7; 900]);
            }
            writer.main(0, 0, 0x40, b"");
        }
        writer.main(1, 10, 0, &[7; 900]);
        writer.store(&folder.0);
        let log = Arc::new(Wal::open(&folder.0, None, None, None).unwrap());
        for threads in [1, 2] {
            let mut records = 0;
            let merge = |count: u64| {
                records += count;
                Ok(())
            };
            let range = log.range(None, None).unwrap();
            let ending = run(&log, range, threads, 16 * PAGE, || Count(None), merge, &mut |_| true).unwrap();
            assert_eq!((records, ending.early.map(|e| e.0)), (604, Some(Lsn(writer.at))));
        }
    }

    #[test]
    fn chunks_that_a_server_wrote_since_are_left_out() {
        let half = |bytes: &mut [u8]| bytes[SEGMENT as usize / 2..].fill(0);
        let (ending, seen) = read_while_written("since", half, true);
        let (end, _) = ending.unwrap().early.unwrap();
        assert!(end.0 < 2 * SEGMENT && end.0 > SEGMENT * 3 / 2 - 20_000, "{end}");
        assert!((50..60).contains(&seen), "{seen} records");
        // The same, but nothing is written: the WAL is damaged.
        let (ending, _) = read_while_written("never", half, false);
        assert!(ending.unwrap_err().message.starts_with("the WAL is damaged"));
    }
}
