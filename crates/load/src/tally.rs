//! What a thread counts: per second, and per part of the run.

use std::collections::BTreeMap;

use leadline_histogram::Times;

/// The number of a second in which the transactions of a phase end that are under way when the phase has passed.
pub(crate) const AFTER: i64 = i64::MAX;

/// A second of one thread. Transactions count in the phase in which they were due.
pub(crate) struct Second {
    /// Of the phases of the plan.
    pub(crate) phase: usize,
    /// Number since the begin of the phase, or AFTER it.
    pub(crate) number: i64,
    pub(crate) begins_ns: i64,
    pub(crate) ends_ns: i64,
    /// From the moment it was due to its end.
    pub(crate) latency: Times,
    /// From its begin to its end.
    pub(crate) service: Times,
    /// From the moment it was due to its begin.
    pub(crate) lag: Times,
    /// The same where a client was free at that moment: what the schedule missed by its own fault.
    pub(crate) schedule_error: Times,
    pub(crate) due: u64,
    pub(crate) begun: u64,
    pub(crate) done: u64,
    /// Ended well in this second of the clock, whenever they were due.
    pub(crate) ended: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
    pub(crate) retries: u64,
    pub(crate) rows: u64,
    pub(crate) sent_bytes: u64,
    pub(crate) received_bytes: u64,
    /// Of the thread: on a CPU, and ready but without one.
    pub(crate) cpu_ns: i64,
    pub(crate) waited_ns: Option<i64>,
    /// Of its TCP connections: the mean of the smoothed round trips, and the shortest seen.
    pub(crate) rtt_us: Option<f64>,
    pub(crate) min_rtt_us: Option<u32>,
    pub(crate) retransmits: Option<u64>,
}

impl Second {
    pub(crate) fn new(phase: usize, number: i64, begins_ns: i64) -> Second {
        Second {
            phase,
            number,
            begins_ns,
            ends_ns: begins_ns,
            latency: Times::new(),
            service: Times::new(),
            lag: Times::new(),
            schedule_error: Times::new(),
            due: 0,
            begun: 0,
            done: 0,
            ended: 0,
            failed: 0,
            skipped: 0,
            retries: 0,
            rows: 0,
            sent_bytes: 0,
            received_bytes: 0,
            cpu_ns: 0,
            waited_ns: None,
            rtt_us: None,
            min_rtt_us: None,
            retransmits: None,
        }
    }

    /// Whether any transaction counts in it.
    pub(crate) fn has_any(&self) -> bool {
        self.due + self.done + self.failed + self.retries > 0
    }

    pub(crate) fn is_last(&self, phases: usize) -> bool {
        self.phase + 1 == phases
    }

    /// Adds what another thread did in it.
    pub(crate) fn add(&mut self, other: &Second) {
        self.latency.add(&other.latency);
        self.service.add(&other.service);
        self.lag.add(&other.lag);
        self.schedule_error.add(&other.schedule_error);
        self.due += other.due;
        self.begun += other.begun;
        self.done += other.done;
        self.ended += other.ended;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.retries += other.retries;
        self.rows += other.rows;
        self.sent_bytes += other.sent_bytes;
        self.received_bytes += other.received_bytes;
        self.ends_ns = self.ends_ns.max(other.ends_ns);
        self.cpu_ns += other.cpu_ns;
        self.waited_ns = self.waited_ns.zip(other.waited_ns).map(|(a, b)| a + b);
        self.rtt_us = match (self.rtt_us, other.rtt_us) {
            (Some(a), Some(b)) => Some((a + b) / 2.0),
            (a, b) => a.or(b),
        };
        self.min_rtt_us = match (self.min_rtt_us, other.min_rtt_us) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.retransmits = match (self.retransmits, other.retransmits) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
    }
}

/// What came of one statement, or of the end of a pipeline.
#[derive(Clone, Default)]
pub(crate) struct Statement {
    /// Made with the first time.
    pub(crate) times: Option<Box<Times>>,
    pub(crate) rows: u64,
    pub(crate) failed: u64,
    pub(crate) retried: u64,
}

impl Statement {
    pub(crate) fn took(&mut self, ns: i64) {
        self.times.get_or_insert_default().record(ns);
    }

    pub(crate) fn add(&mut self, other: &Statement) {
        if let Some(times) = &other.times {
            self.times.get_or_insert_default().add(times);
        }
        self.rows += other.rows;
        self.failed += other.failed;
        self.retried += other.retried;
    }
}

/// What came of the statements of a phase, by script and command.
pub(crate) struct Part {
    pub(crate) phase: usize,
    pub(crate) statements: Vec<Vec<Statement>>,
    /// By script: latency and service of its transactions.
    pub(crate) scripts: Vec<ScriptTimes>,
    pub(crate) errors: BTreeMap<String, Errors>,
}

/// Transactions of one script.
#[derive(Clone, Default)]
pub(crate) struct ScriptTimes {
    pub(crate) latency: Option<Box<Times>>,
    pub(crate) failed: u64,
}

/// Errors of one SQLSTATE.
#[derive(Debug, Clone, Default)]
pub(crate) struct Errors {
    pub(crate) count: u64,
    /// Of them: the transaction was begun again.
    pub(crate) retried: u64,
    /// Of the first one.
    pub(crate) message: String,
}

impl Part {
    /// lengths: commands of each script.
    pub(crate) fn new(phase: usize, lengths: &[usize]) -> Part {
        let statements = lengths.iter().map(|length| vec![Statement::default(); *length]).collect();
        Part { phase, statements, scripts: vec![ScriptTimes::default(); lengths.len()], errors: BTreeMap::new() }
    }

    pub(crate) fn error(&mut self, sqlstate: &str, message: &str, retried: bool) {
        if !self.errors.contains_key(sqlstate) {
            self.errors.insert(sqlstate.to_owned(), Errors { message: message.to_owned(), ..Errors::default() });
        }
        if let Some(errors) = self.errors.get_mut(sqlstate) {
            errors.count += 1;
            errors.retried += u64::from(retried);
        }
    }

    pub(crate) fn add(&mut self, other: &Part) {
        for (ours, theirs) in self.statements.iter_mut().flatten().zip(other.statements.iter().flatten()) {
            ours.add(theirs);
        }
        for (ours, theirs) in self.scripts.iter_mut().zip(&other.scripts) {
            if let Some(times) = &theirs.latency {
                ours.latency.get_or_insert_default().add(times);
            }
            ours.failed += theirs.failed;
        }
        for (sqlstate, theirs) in &other.errors {
            let ours = self
                .errors
                .entry(sqlstate.clone())
                .or_insert_with(|| Errors { message: theirs.message.clone(), ..Errors::default() });
            ours.count += theirs.count;
            ours.retried += theirs.retried;
        }
    }
}
