//! A block trace of a real run, and when each of its requests is issued again.

use std::collections::HashMap;

/// A request of a trace. Times are nanoseconds on any clock.
#[derive(Debug, Clone)]
pub struct TraceRow {
    /// When it was issued.
    pub issued: u64,
    /// When it had ended.
    pub ended: u64,
    /// Its device, which the layout puts on a LUN.
    pub device: String,
    /// First byte.
    pub at: u64,
    /// Length.
    pub bytes: u64,
    /// Whether it writes.
    pub write: bool,
    /// Who issued it.
    pub thread: i64,
}

/// How the requests of a trace come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loop {
    /// At their times.
    Open,
    /// Each when as many requests of its thread have ended as had in the trace, and as long after that.
    Closed,
}

/// One thread of the trace: its requests in order, and what has come of them again.
#[derive(Debug, Default)]
struct Thread {
    rows: Vec<Planned>,
    /// How many have been planned to be issued.
    next: usize,
    /// When requests ended again.
    ended: Vec<u64>,
    last: u64,
}

#[derive(Debug)]
struct Planned {
    row: usize,
    /// So many requests of the thread had ended, the last one of these so long before.
    after: usize,
    gap: u64,
}

#[derive(Debug)]
pub(crate) struct Replay {
    threads: Vec<Thread>,
    of_row: Vec<usize>,
}

impl Replay {
    /// `rows` in the order in which they were issued.
    pub fn new(rows: &[TraceRow], how: Loop) -> Replay {
        let begin = rows.first().map_or(0, |row| row.issued);
        let mut numbers: HashMap<i64, usize> = HashMap::new();
        let (mut threads, mut of_row): (Vec<Thread>, Vec<usize>) = (Vec::new(), Vec::new());
        let mut ends: Vec<Vec<u64>> = Vec::new();
        for (n, row) in rows.iter().enumerate() {
            let key = if how == Loop::Open { 0 } else { row.thread };
            let thread = *numbers.entry(key).or_insert_with(|| {
                threads.push(Thread::default());
                ends.push(Vec::new());
                threads.len() - 1
            });
            of_row.push(thread);
            ends[thread].push(row.ended.max(row.issued));
            threads[thread].rows.push(Planned { row: n, after: 0, gap: row.issued.saturating_sub(begin) });
        }
        if how == Loop::Closed {
            for (thread, ends) in threads.iter_mut().zip(&mut ends) {
                ends.sort_unstable();
                for planned in &mut thread.rows {
                    let issued = rows[planned.row].issued;
                    // One that ended at the moment at which it was issued has not ended before that.
                    planned.after = ends.partition_point(|end| *end < issued);
                    if planned.after > 0 {
                        planned.gap = issued - ends[planned.after - 1];
                    }
                }
            }
        }
        Replay { threads, of_row }
    }

    /// Rows that can be planned now, with their times: at the begin of each thread, and when a request of it has ended.
    pub fn due(&mut self, thread: usize, out: &mut Vec<(u64, usize)>) {
        let thread = &mut self.threads[thread];
        while let Some(planned) = thread.rows.get(thread.next) {
            let from = match planned.after {
                0 => 0,
                after => match thread.ended.get(after - 1) {
                    Some(ended) => *ended,
                    None => return,
                },
            };
            thread.last = thread.last.max(from + planned.gap);
            thread.next += 1;
            out.push((thread.last, planned.row));
        }
    }

    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The thread of a row.
    pub fn thread_of(&self, row: usize) -> usize {
        self.of_row[row]
    }

    pub fn ended(&mut self, row: usize, now: u64) {
        self.threads[self.of_row[row]].ended.push(now);
    }
}
