//! What a simulated run has counted, as JSON.

use hdrhistogram::Histogram;
use serde_json::{json, Value};

/// A longer latency counts as this.
const LONGEST_NS: u64 = 1_000_000_000_000_000;

/// Kinds of requests whose latency is told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequestKind {
    Read,
    Write,
    Commit,
}

/// Counts from the end of the warm-up on.
#[derive(Debug)]
pub(crate) struct Results {
    latency: [Histogram<u64>; 3],
    bytes: u64,
    transactions: Histogram<u64>,
    pub rows: f64,
}

impl Results {
    pub fn new() -> Results {
        let histogram =
            || Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("these are bounds and a precision that it knows");
        Results { latency: [histogram(), histogram(), histogram()], bytes: 0, transactions: histogram(), rows: 0.0 }
    }

    pub fn request(&mut self, kind: RequestKind, ns: u64, bytes: u64) {
        self.latency[kind as usize].saturating_record(ns);
        self.bytes += bytes;
    }

    pub fn transaction(&mut self, ns: u64, rows: f64) {
        self.transactions.saturating_record(ns);
        self.rows += rows;
    }

    pub fn as_json(&self, seconds: f64) -> Value {
        let [reads, writes, commits] = &self.latency;
        let requests = reads.len() + writes.len() + commits.len();
        let per_s = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
        json!({
            "seconds": seconds,
            "requests": requests,
            "requests_per_s": per_s(requests as f64),
            "reads_per_s": per_s(reads.len() as f64),
            "writes_per_s": per_s(writes.len() as f64),
            "commits_per_s": per_s(commits.len() as f64),
            "mb_per_s": per_s(self.bytes as f64 / 1e6),
            "transactions_per_s": per_s(self.transactions.len() as f64),
            "rows_per_s": per_s(self.rows),
            "latency_ms": {
                "read": quantiles(reads), "write": quantiles(writes), "commit": quantiles(commits),
                "transaction": quantiles(&self.transactions),
            },
        })
    }
}

fn quantiles(of: &Histogram<u64>) -> Value {
    if of.is_empty() {
        return Value::Null;
    }
    let ms = |ns: f64| ns / 1e6;
    let at = |share: f64| ms(of.value_at_quantile(share) as f64);
    json!({"mean": ms(of.mean()), "p50": at(0.5), "p95": at(0.95), "p99": at(0.99), "max": ms(of.max() as f64)})
}
