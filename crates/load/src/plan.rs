//! What is to be run.

use std::time::Duration;

use crate::client::Mode;
use crate::schedule::Phase;
use crate::terminals::TerminalPlan;

/// A script as the user gave it.
#[derive(Debug, Clone)]
pub struct Source {
    /// For errors and results.
    pub name: String,
    /// Relative to the others; 0: never chosen.
    pub weight: u32,
    /// The script.
    pub text: String,
}

/// What is to be run.
#[derive(Debug, Clone)]
pub struct Plan {
    /// At least one.
    pub scripts: Vec<Source>,
    /// How statements go to the server.
    pub mode: Mode,
    /// Connections.
    pub clients: usize,
    /// At most as many as clients.
    pub threads: usize,
    /// One after the other.
    pub phases: Vec<Phase>,
    /// People who wait for a client, think and key in, in place of a rate.
    pub terminals: Option<TerminalPlan>,
    /// Of each client; None: as many as the time allows.
    pub transactions: Option<u64>,
    /// The first phase, a warm-up, ends before its time when the rate is steady over means of so many seconds.
    pub auto_warm_up: Option<usize>,
    /// Moments that know nothing of each other, instead of even ones.
    pub poisson: bool,
    /// Of the variable `scale`.
    pub scale: i64,
    /// Variables set by the user.
    pub variables: Vec<(String, String)>,
    /// The same seed gives the same values.
    pub seed: u64,
    /// Of a transaction that could not be serialized, or was part of a deadlock. 0: without limit.
    pub max_tries: u32,
    /// Other errors end the transaction, not the client.
    pub continue_on_error: bool,
    /// A transaction that is so late is not begun.
    pub latency_limit: Option<Duration>,
    /// How long to wait for answers at the end.
    pub drain: Duration,
    /// Whether each second comes with its histograms.
    pub histograms: bool,
}
