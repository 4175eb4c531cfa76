//! What a layout file and a load file say: drives, groups, LUNs, placement, and what is asked of them.

use std::collections::{BTreeMap, HashSet};

use leadline_errors::{Error, Kind, Result};
use serde::Deserialize;

/// Drives of one group, groups of a layout, LUNs of a layout.
const MOST: usize = 1000;
/// Bytes of the units that people write.
pub(crate) const KB: u64 = 1 << 10;
pub(crate) const GB: f64 = (1u64 << 30) as f64;

/// A layout: groups of drives, their LUNs, and which object lies on which LUN.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// What it is called in results.
    pub name: String,
    /// The drive of every group that has none of its own.
    pub drive: Option<DriveSpec>,
    #[serde(rename = "group")]
    pub(crate) groups: Vec<GroupSpec>,
    /// LUNs of each object.
    #[serde(default)]
    pub(crate) place: BTreeMap<String, Vec<String>>,
    /// Size of an object over all its LUNs. Objects without one share what is left of their LUNs.
    #[serde(default)]
    pub(crate) size_gb: BTreeMap<String, f64>,
    /// Devices of a trace and their LUNs.
    #[serde(default)]
    pub(crate) device: BTreeMap<String, String>,
}

/// A model of a drive.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum DriveSpec {
    /// A spinning disk.
    Hdd {
        /// Capacity in GB of 2^30 bytes.
        capacity_gb: f64,
        /// Revolutions in a minute.
        rpm: f64,
        /// Seek times: to the next track, on average between random tracks, over all tracks.
        seek_ms: [f64; 3],
        /// From the platters, in MB of 10^6 bytes a second.
        transfer_mb_s: f64,
        /// Among how many waiting requests the drive chooses.
        #[serde(default = "one")]
        queue_depth: usize,
        /// How it chooses.
        #[serde(default)]
        order: Order,
        /// What it reads on into its buffer behind a read, while it has nothing else to do.
        #[serde(default)]
        read_ahead_kb: u64,
    },
    /// A solid-state drive.
    Ssd {
        /// Capacity in GB of 2^30 bytes.
        capacity_gb: f64,
        /// Time of a read, without its transfer.
        read_us: f64,
        /// Time of a write, without its transfer.
        write_us: f64,
        /// How many requests it serves at a time.
        parallel: usize,
        /// Transfer of each of these, in MB of 10^6 bytes a second.
        transfer_mb_s: f64,
    },
    /// A device that lets only so many requests a second through.
    Limited {
        /// Capacity in GB of 2^30 bytes.
        capacity_gb: f64,
        /// Reads and writes together.
        requests_per_s: Option<f64>,
        /// Reads, where they have a limit of their own.
        reads_per_s: Option<f64>,
        /// Writes, where they have a limit of their own.
        writes_per_s: Option<f64>,
        /// Time of a request that has been let through.
        #[serde(default)]
        latency_ms: f64,
        /// What was not used of the limit in this time may pass at once; 0: requests pass at even distances.
        #[serde(default)]
        burst_ms: f64,
        /// What may pass in this time passes at its begin, as with limits of control groups.
        #[serde(default)]
        slice_ms: f64,
    },
}

/// How a disk chooses among waiting requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The oldest.
    Fifo,
    /// The next one in the direction of the arm, then from the first track again.
    Elevator,
    /// The one that the head reaches first, by seek and rotation.
    #[default]
    Shortest,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GroupSpec {
    pub name: String,
    pub raid: u32,
    pub drives: usize,
    #[serde(default = "stripe")]
    pub stripe_kb: u64,
    pub luns: Vec<String>,
    pub drive: Option<DriveSpec>,
    #[serde(default)]
    pub mirror_reads: MirrorReads,
    #[serde(default)]
    pub partial_writes: PartialWrites,
    /// Rows of a parity group that are held in memory, so that a write to them reads nothing.
    #[serde(default)]
    pub stripe_cache: usize,
    pub cache: Option<CacheSpec>,
}

/// Which copy a read takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum MirrorReads {
    #[default]
    ShortestQueue,
    /// Always the same copy for one thread, as btrfs does.
    Thread,
}

/// What a write to a part of a stripe reads first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum PartialWrites {
    /// Of the next two whichever takes fewer reads.
    #[default]
    Cheapest,
    ReadModifyWrite,
    Reconstruct,
    /// Every chunk of the stripe, whole, with parity, as btrfs does.
    WholeStripe,
}

/// A write-back cache of the controller.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CacheSpec {
    pub size_mb: f64,
    /// Writes to the drives that run at a time.
    #[serde(default = "destage")]
    pub destage: usize,
    #[serde(default = "cache_us")]
    pub latency_us: f64,
}

/// Loads, each simulated by itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loads {
    /// In the order of the file.
    pub load: Vec<Load>,
}

/// A load: threads that each run transactions of steps, or transactions at a rate.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Load {
    /// What it is called in results.
    pub name: String,
    /// Clients of a closed loop.
    #[serde(default)]
    pub(crate) threads: usize,
    /// Transactions a second of an open loop, at random moments.
    pub(crate) rate_per_s: Option<f64>,
    /// Between the end of a transaction and the begin of the next one.
    #[serde(default)]
    pub(crate) think_ms: f64,
    /// Rows that a transaction goes through.
    #[serde(default)]
    pub(crate) rows: f64,
    /// Writes that nobody waits for which may be under way for each thread.
    #[serde(default = "background")]
    pub(crate) background_writes: usize,
    #[serde(rename = "step")]
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub op: StepOp,
    pub object: String,
    #[serde(default = "page")]
    pub kb: u64,
    /// How often; of 2.3, three times in 30 % of the transactions and else twice.
    #[serde(default = "once")]
    pub count: f64,
    #[serde(default)]
    pub pattern: Pattern,
    #[serde(default)]
    pub background: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StepOp {
    Read,
    Write,
    /// A write at the end of a log; those that come while one is under way are written together behind it.
    Commit,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pattern {
    #[default]
    Random,
    Sequential,
}

fn one() -> usize {
    1
}
fn stripe() -> u64 {
    64
}
fn destage() -> usize {
    8
}
fn cache_us() -> f64 {
    100.0
}
fn background() -> usize {
    64
}
fn page() -> u64 {
    8
}
fn once() -> f64 {
    1.0
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Kind::Invalid, message)
}

/// From the text of a file; `what` and `name` are for the error.
fn parse<'a, T: Deserialize<'a>>(text: &'a str, what: &str, name: &str) -> Result<T> {
    toml::from_str(text).map_err(|e| {
        let line = e.span().map(|span| text.get(..span.start).unwrap_or("").matches('\n').count() + 1);
        let at = line.map_or(name.to_owned(), |line| format!("{name}:{line}"));
        invalid(format!("this is no {what}"))
            .detail(e.message().trim_end())
            .hint("leadline storage example prints a whole one")
            .at(at)
    })
}

fn number(value: f64, least: f64, most: f64, what: &str) -> Result<()> {
    if value.is_finite() && (least..=most).contains(&value) {
        return Ok(());
    }
    Err(invalid(format!("{what} is {value}")).detail(format!("it is a number from {least} to {most}")))
}

impl Layout {
    /// From the text of a file. Raises invalid, with file and line.
    pub fn parse(text: &str, name: &str) -> Result<Layout> {
        let layout: Layout = parse(text, "layout", name)?;
        layout.check().map_err(|e| e.at(name))?;
        Ok(layout)
    }

    fn check(&self) -> Result<()> {
        if self.groups.is_empty() || self.groups.len() > MOST {
            return Err(invalid(format!("a layout has 1 to {MOST} groups")));
        }
        let (mut groups, mut luns) = (HashSet::new(), HashSet::new());
        for group in &self.groups {
            if !groups.insert(&group.name) {
                return Err(invalid(format!("two groups are called {}", group.name)));
            }
            group.check(self.drive.as_ref())?;
            if let Some(twice) = group.luns.iter().find(|lun| !luns.insert((*lun).clone())) {
                return Err(invalid(format!("two LUNs are called {twice}")));
            }
        }
        let named = self.place.iter().flat_map(|(object, on)| on.iter().map(move |lun| (object, lun)));
        for (what, lun) in named.chain(&self.device) {
            if !luns.contains(lun) {
                return Err(invalid(format!("{what} lies on LUN {lun}, which no group has")));
            }
        }
        for (object, on) in &self.place {
            if on.is_empty() || on.len() > MOST {
                return Err(invalid(format!("{object} lies on no LUN, or on more than {MOST}")));
            }
        }
        for (object, size) in &self.size_gb {
            number(*size, 1e-6, 1e9, &format!("size_gb of {object}"))?;
            if !self.place.contains_key(object) {
                return Err(invalid(format!("{object} has a size and no place")));
            }
        }
        Ok(())
    }
}

impl GroupSpec {
    fn check(&self, common: Option<&DriveSpec>) -> Result<()> {
        let name = &self.name;
        let wrong = match self.raid {
            0 if self.drives < 1 => "RAID 0 needs a drive",
            1 if self.drives < 2 => "RAID 1 needs two drives or more",
            10 if self.drives < 2 || self.drives % 2 == 1 => "RAID 10 needs an even number of drives",
            5 if self.drives < 3 => "RAID 5 needs three drives or more",
            6 if self.drives < 4 => "RAID 6 needs four drives or more",
            0 | 1 | 5 | 6 | 10 => "",
            _ => "raid is 0, 1, 5, 6 or 10",
        };
        if !wrong.is_empty() {
            return Err(
                invalid(format!("group {name}: {wrong}")).detail(format!("RAID {}, {} drives", self.raid, self.drives))
            );
        }
        if self.drives > MOST || self.luns.is_empty() || self.luns.len() > MOST {
            return Err(invalid(format!("group {name} has 1 to {MOST} drives, and 1 to {MOST} LUNs")));
        }
        if self.stripe_kb == 0 || self.stripe_kb > 1 << 20 {
            return Err(invalid(format!("group {name}: stripe_kb is not from 1 to {}", 1 << 20)));
        }
        if self.stripe_cache > 10_000_000 {
            return Err(invalid(format!("group {name}: stripe_cache is more than 10,000,000")));
        }
        if let Some(cache) = &self.cache {
            number(cache.size_mb, 1.0, 1e6, "size_mb of the cache")?;
            number(cache.latency_us, 1.0, 1e6, "latency_us of the cache")?;
            number(cache.destage as f64, 1.0, 1e4, "destage of the cache")?;
        }
        match self.drive.as_ref().or(common) {
            Some(drive) => drive.check().map_err(|e| Error { message: format!("group {name}: {}", e.message), ..e }),
            None => Err(invalid(format!("group {name} has no drive")).hint("[drive] is the drive of all groups")),
        }
    }
}

impl DriveSpec {
    fn check(&self) -> Result<()> {
        match self {
            DriveSpec::Hdd { capacity_gb, rpm, seek_ms, transfer_mb_s, queue_depth, read_ahead_kb, .. } => {
                number(*capacity_gb, 1e-3, 1e6, "capacity_gb")?;
                number(*rpm, 100.0, 1e6, "rpm")?;
                number(*transfer_mb_s, 0.1, 1e5, "transfer_mb_s")?;
                number(*queue_depth as f64, 1.0, 1024.0, "queue_depth")?;
                number(*read_ahead_kb as f64, 0.0, 1e6, "read_ahead_kb")?;
                for seek in seek_ms {
                    number(*seek, 0.0, 1e3, "seek_ms")?;
                }
                crate::seek::Seek::of(*seek_ms).map(|_| ())
            }
            DriveSpec::Ssd { capacity_gb, read_us, write_us, parallel, transfer_mb_s } => {
                number(*capacity_gb, 1e-3, 1e6, "capacity_gb")?;
                number(*read_us, 0.1, 1e6, "read_us")?;
                number(*write_us, 0.1, 1e6, "write_us")?;
                number(*parallel as f64, 1.0, 1e5, "parallel")?;
                number(*transfer_mb_s, 0.1, 1e6, "transfer_mb_s")
            }
            DriveSpec::Limited {
                capacity_gb,
                requests_per_s,
                reads_per_s,
                writes_per_s,
                latency_ms,
                burst_ms,
                slice_ms,
            } => {
                number(*capacity_gb, 1e-3, 1e6, "capacity_gb")?;
                number(*latency_ms, 0.0, 1e4, "latency_ms")?;
                number(*burst_ms, 0.0, 1e4, "burst_ms")?;
                number(*slice_ms, 0.0, 1e4, "slice_ms")?;
                if *burst_ms > 0.0 && *slice_ms > 0.0 {
                    return Err(invalid("a limited drive has burst_ms or slice_ms"));
                }
                match (requests_per_s, reads_per_s, writes_per_s) {
                    (Some(all), None, None) => number(*all, 0.1, 1e7, "requests_per_s"),
                    (None, Some(reads), Some(writes)) => {
                        number(*reads, 0.1, 1e7, "reads_per_s")?;
                        number(*writes, 0.1, 1e7, "writes_per_s")
                    }
                    _ => Err(invalid("a limited drive has requests_per_s, or reads_per_s and writes_per_s")),
                }
            }
        }
    }

    pub(crate) fn capacity(&self) -> u64 {
        let (DriveSpec::Hdd { capacity_gb, .. }
        | DriveSpec::Ssd { capacity_gb, .. }
        | DriveSpec::Limited { capacity_gb, .. }) = self;
        (capacity_gb * GB) as u64
    }
}

impl Loads {
    /// From the text of a file. Raises invalid, with file and line.
    pub fn parse(text: &str, name: &str) -> Result<Loads> {
        let loads: Loads = parse(text, "load", name)?;
        let mut names = HashSet::new();
        for load in &loads.load {
            load.check().map_err(|e| e.at(name))?;
            if !names.insert(&load.name) {
                return Err(invalid(format!("two loads are called {}", load.name)).at(name));
            }
        }
        if loads.load.is_empty() {
            return Err(invalid("there is no load").at(name));
        }
        Ok(loads)
    }
}

impl Load {
    fn check(&self) -> Result<()> {
        let name = &self.name;
        match self.rate_per_s {
            Some(rate) if self.threads == 0 => number(rate, 1e-3, 1e6, &format!("rate_per_s of {name}"))?,
            None if (1..=10_000).contains(&self.threads) => {}
            _ => return Err(invalid(format!("load {name} has 1 to 10,000 threads, or else rate_per_s"))),
        }
        number(self.think_ms, 0.0, 1e7, &format!("think_ms of {name}"))?;
        number(self.rows, 0.0, 1e9, &format!("rows of {name}"))?;
        number(self.background_writes as f64, 1.0, 1e6, &format!("background_writes of {name}"))?;
        for step in &self.steps {
            number(step.kb as f64, 1.0, 65536.0, &format!("kb of a step of {name}"))?;
            number(step.count, 0.0, 1e6, &format!("count of a step of {name}"))?;
            if step.background && step.op != StepOp::Write {
                return Err(invalid(format!("load {name}: only a write may be in the background")));
            }
        }
        if !self.steps.iter().any(|step| step.count >= 1.0) {
            return Err(invalid(format!("load {name} has no step that each transaction takes"))
                .detail("one of the steps has a count of 1 or more"));
        }
        Ok(())
    }
}
