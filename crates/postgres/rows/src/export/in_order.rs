//! Blocks decoded by several threads, and what they make of them handed over in the order of the blocks.
//!
//! Ranges of blocks are dealt out like cards, so that the one who takes knows whose turn it is; a thread that is ahead waits.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{sync_channel, SyncSender};
use std::sync::Arc;

use crate::decode::{Decoder, Sink, Unread};
use crate::filter::Filter;
use crate::relation::Relation;
use leadline_errors::{Error, Kind, Result};

/// Makes something of rows, and gives it away whenever it has enough of them.
pub(super) trait Maker: Sink {
    type Made: Send;

    /// What was made since the last call, at the end of a range of blocks.
    fn finish(&mut self) -> Result<Option<Self::Made>>;
}

/// Where a maker puts what it has made.
pub(super) struct Outlet<T>(SyncSender<Message<T>>);

enum Message<T> {
    Made(T),
    /// A range is done.
    Done,
    Failed(Error),
}

impl<T> Outlet<T> {
    /// # Errors
    /// When nobody takes it any more; who took has a better one.
    pub(super) fn put(&self, made: T) -> Result<()> {
        self.0.send(Message::Made(made)).map_err(|_| Error::new(Kind::Usage, "the export was canceled"))
    }
}

/// Which blocks, of what, by how many.
pub(super) struct Plan<'r> {
    pub relation: &'r Arc<Relation>,
    pub dead: bool,
    /// Blocks of a range.
    pub range: u32,
    pub threads: usize,
    /// Only rows of which this is true are given.
    pub filter: Option<Arc<Filter>>,
    /// How many rows are given at most; then by one thread, as no other knows how many were before its own.
    pub limit: Option<u64>,
    /// Set when there is a row whose status is not known; then the rest is not looked at.
    pub needs_status: Option<&'r AtomicBool>,
}

/// What was read.
#[derive(Debug, Clone, Default)]
pub(super) struct Read {
    pub unread: Unread,
    /// Behind the last block that was looked at.
    pub end: u32,
    /// How many rows more may be given.
    pub left: Option<u64>,
}

/// `make` makes a maker for each thread; `take` gets what they make and how many blocks are done by then.
pub(super) fn in_order<M: Maker>(
    plan: &Plan<'_>,
    make: impl Fn(Outlet<M::Made>) -> Result<M> + Sync,
    mut take: impl FnMut(Option<M::Made>, u32) -> Result<()>,
) -> Result<Read> {
    let blocks = plan.relation.heap.blocks;
    let ranges = blocks.div_ceil(plan.range);
    let most = if plan.limit.is_some() { 1 } else { plan.threads };
    let threads = most.clamp(1, ranges.max(1) as usize);
    let range = |number: u32| number * plan.range..blocks.min((number + 1).saturating_mul(plan.range));
    std::thread::scope(|scope| {
        let mut outlets = Vec::new();
        let mut workers = Vec::new();
        for first in 0..threads {
            let (sender, receiver) = sync_channel(1);
            outlets.push(receiver);
            let (make, range) = (&make, &range);
            workers.push(scope.spawn(move || {
                let mut decoder = Decoder::new(plan.relation, plan.dead).choosing(plan.filter.clone(), plan.limit);
                let mine = (first as u32..ranges).step_by(threads).map(range);
                if let Err(e) = work(&mut decoder, mine, &sender, make, plan.needs_status) {
                    let _ = sender.send(Message::Failed(e)); // nobody asks any more
                }
                (decoder.unread(), decoder.end(), decoder.left())
            }));
        }
        for number in 0..ranges {
            loop {
                match outlets[number as usize % threads].recv() {
                    Ok(Message::Made(made)) => take(Some(made), range(number).start)?,
                    Ok(Message::Done) => break,
                    Ok(Message::Failed(e)) => return Err(e),
                    Err(_) => return Err(Error::fault("read rows", &())),
                }
            }
            take(None, range(number).end)?;
        }
        let mut read = Read { end: blocks, ..Read::default() };
        for worker in workers {
            let (unread, end, left) = worker.join().map_err(|panic| Error::fault("read rows", &*panic))?;
            read.unread.add(&unread);
            (read.end, read.left) = (end.unwrap_or(read.end), left);
        }
        Ok(read)
    })
}

fn work<M: Maker>(
    decoder: &mut Decoder,
    ranges: impl Iterator<Item = Range<u32>>,
    sender: &SyncSender<Message<M::Made>>,
    make: &impl Fn(Outlet<M::Made>) -> Result<M>,
    needs_status: Option<&AtomicBool>,
) -> Result<()> {
    let mut maker = make(Outlet(sender.clone()))?;
    for range in ranges {
        decoder.blocks(range, &mut maker)?;
        if let Some(needs) = needs_status.filter(|_| decoder.has_unknown()) {
            needs.store(true, Relaxed);
            return Err(Error::new(Kind::Usage, "the export was canceled"));
        }
        if let Some(made) = maker.finish()? {
            Outlet(sender.clone()).put(made)?;
        }
        if sender.send(Message::Done).is_err() {
            break;
        }
    }
    Ok(())
}
