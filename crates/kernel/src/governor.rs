//! Holds the trace to a budget: when it takes too much CPU, or more comes than it can read, less is recorded.

/// Seconds in a row above the budget before the next step: a burst is no reason.
const PATIENCE: u32 = 2;

/// What is recorded, from all to least. Sums cost the same whatever the threads do, so nothing comes after them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// Calls and stays off the CPU one by one, and stacks.
    All,
    /// No stacks.
    Events,
    /// Calls summed in the kernel, no stacks.
    Sums,
}

impl Detail {
    /// Its name in `kernel_detail`.
    pub fn name(self) -> &'static str {
        match self {
            Detail::All => "events and stacks",
            Detail::Events => "events",
            Detail::Sums => "sums",
        }
    }
}

/// One step down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// ns on CLOCK_MONOTONIC.
    pub ts: i64,
    /// From then on.
    pub detail: Detail,
    /// CPU time of the reader in the second before, by elapsed time.
    pub cpu_share: f64,
    /// Events lost in that second.
    pub lost: u64,
}

/// Looks once a second.
pub struct Governor {
    budget: f64,
    detail: Detail,
    least: Detail,
    since: Option<Reading>,
    over: u32,
}

#[derive(Clone, Copy)]
struct Reading {
    ts: i64,
    cpu_ns: i64,
    lost: u64,
}

impl Governor {
    /// budget: CPU time of the reader, as a share of one core. least: after this there is no further step.
    pub fn new(budget: f64, detail: Detail, least: Detail) -> Governor {
        Governor { budget, detail, least, since: None, over: 0 }
    }

    /// Takes note of the reader's CPU time and of the events lost so far; a step when one is due.
    pub fn look(&mut self, ts: i64, cpu_ns: i64, lost: u64) -> Option<Step> {
        let now = Reading { ts, cpu_ns, lost };
        let before = *self.since.get_or_insert(now);
        if ts - before.ts < 1_000_000_000 {
            return None;
        }
        self.since = Some(now);
        let cpu_share = (cpu_ns - before.cpu_ns) as f64 / (ts - before.ts) as f64;
        let lost = lost.saturating_sub(before.lost);
        self.over = if cpu_share > self.budget || lost > 0 { self.over + 1 } else { 0 };
        if self.over < PATIENCE {
            return None;
        }
        self.over = 0;
        if self.detail >= self.least {
            return None;
        }
        self.detail = match self.detail {
            Detail::All => Detail::Events,
            Detail::Events => Detail::Sums,
            Detail::Sums => return None,
        };
        Some(Step { ts, detail: self.detail, cpu_share, lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    /// Steps of a governor with a budget of 0.1 that looks four times a second; each second has its CPU share and events lost.
    fn steps(seconds: &[(f64, u64)]) -> Vec<(i64, &'static str)> {
        let mut governor = Governor::new(0.1, Detail::All, Detail::Sums);
        let (mut cpu, mut lost, mut found) = (0, 0, Vec::new());
        governor.look(0, 0, 0);
        for (i, (share, events)) in seconds.iter().enumerate() {
            for quarter in 1..=4 {
                cpu += (share * SECOND as f64 / 4.0) as i64;
                lost += if quarter == 1 { *events } else { 0 };
                let ts = i as i64 * SECOND + quarter * SECOND / 4;
                found.extend(governor.look(ts, cpu, lost).map(|step| (step.ts / SECOND, step.detail.name())));
            }
        }
        found
    }

    #[test]
    fn two_seconds_above_the_budget_are_a_step() {
        let found = steps(&[(0.2, 0), (0.05, 0), (0.2, 0), (0.3, 0), (0.2, 0), (0.2, 0), (0.9, 0), (0.9, 0)]);
        assert_eq!(found, [(4, "events"), (6, "sums")]);
    }

    #[test]
    fn lost_events_are_a_step_too() {
        assert_eq!(steps(&[(0.01, 5), (0.01, 1), (0.01, 0)]), [(2, "events")]);
    }

    #[test]
    fn within_the_budget_nothing_changes() {
        assert_eq!(steps(&[(0.09, 0); 20]), []);
    }
}
