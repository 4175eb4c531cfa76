//! Starts, watches and stops the two threads of a recording.

use crate::background::Background;
use crate::sampler::{self, Left};
use crate::shared::{Config, Shared};
use crate::tables::Tables;
use leadline_capture::Stats;
use leadline_clockwork::monotonic_ns;
use leadline_errors::{Error, Kind};
use leadline_shm::attach::{attach, Attached};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The state of a recording. `cpu_ns`: of its threads.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Status {
    pub running: bool,
    pub ts_from: i64,
    pub ts_now: i64,
    pub ticks: u64,
    pub missed: u64,
    pub torn: u64,
    pub unverified: u64,
    pub sessions: u64,
    pub rows: u64,
    pub bytes_written: u64,
    pub cpu_ns: i64,
    pub realtime: bool,
}

/// A recording of one server.
pub struct Recorder {
    config: Config,
    major: u32,
    period_ns: i64,
    attached: Option<Attached>,
    shared: Arc<Shared>,
    threads: Option<(JoinHandle<Left>, JoinHandle<Tables>)>,
    /// None while a thread writes them. Behind a lock only because threads of Python share a recorder.
    tables: Mutex<Option<Tables>>,
    left: Left,
    written: BTreeMap<&'static str, Stats>,
    ts_to: Option<i64>,
}

impl Recorder {
    /// Attaches to the server and proves its layout; nothing is sampled yet.
    pub fn attach(config: Config) -> Result<(Recorder, Description), Error> {
        if !(config.rate_hz.is_finite() && (0.001..=100_000.0).contains(&config.rate_hz)) {
            return Err(Error::new(Kind::Usage, format!("a rate of {} Hz is out of range", config.rate_hz)));
        }
        for (name, seconds) in
            [("delta interval", config.delta_interval_s), ("flush interval", config.flush_interval_s)]
        {
            if !(seconds.is_finite() && seconds >= 0.01) {
                return Err(Error::new(Kind::Usage, format!("a {name} of {seconds} s is too short")));
            }
        }
        let attached = attach(config.pid, config.allow_map)?;
        let description = Description::of(&attached);
        let period_ns = (1e9 / config.rate_hz) as i64;
        let (layout, events) = (attached.layout.clone(), attached.wait_events.clone());
        let recorder = Recorder {
            period_ns,
            tables: Mutex::new(Some(Tables::new(
                &config.capture_dir,
                config.growing_segments,
                layout,
                events,
                period_ns,
            ))),
            left: Left::default(),
            major: attached.version_num / 10_000,
            config,
            attached: Some(attached),
            shared: Arc::default(),
            threads: None,
            written: BTreeMap::new(),
            ts_to: None,
        };
        Ok((recorder, description))
    }

    /// Attaches to the server that has started again, after the recording has ended for want of the server. `start` goes on: sessions,
    /// passes and statements are counted on, and the passes that were due in between are missed.
    pub fn attach_again(&mut self, pid: i32) -> Result<Description, Error> {
        self.join();
        let attached = attach(pid, self.config.allow_map)?;
        if attached.version_num / 10_000 != self.major {
            let versions = format!("it was {}, and is {}", self.major, attached.version_text);
            return Err(Error::new(Kind::Unsupported, "the server came back with another major version")
                .detail(versions)
                .hint("start another capture for the new server"));
        }
        let description = Description::of(&attached);
        self.attached = Some(attached);
        self.shared.begin_again();
        Ok(description)
    }

    /// Starts the threads, once after each attach.
    pub fn start(&mut self) -> Result<(), Error> {
        let started = || Error::new(Kind::Usage, "the recording has already been started");
        let attached = self.attached.take().ok_or_else(started)?;
        let tables = self.tables.get_mut().take().ok_or_else(started)?;
        let (hand_over, handed_over) = mpsc::channel();
        let (emptied, to_fill) = mpsc::channel();
        let background = Background {
            config: self.config.clone(),
            anchors: attached.anchors.clone(),
            tables,
            shared: self.shared.clone(),
            cpu_before: self.shared.writer_cpu_ns.load(Relaxed),
            emptied,
        };
        let (shared, period_ns) = (self.shared.clone(), self.period_ns);
        let left = std::mem::take(&mut self.left);
        let list_ns = (self.config.delta_interval_s * 1e9) as i64;
        let spawn = |e: std::io::Error| Error::new(Kind::Storage, "cannot start a thread").detail(e.to_string());
        let writer = std::thread::Builder::new()
            .name("leadline-write".into())
            .spawn(move || background.run(&handed_over))
            .map_err(spawn)?;
        let sampling = std::thread::Builder::new()
            .name("leadline-sample".into())
            .spawn(move || sampler::run(attached, left, period_ns, list_ns, shared, hand_over, to_fill))
            .map_err(spawn)?;
        self.threads = Some((sampling, writer));
        Ok(())
    }

    /// Has the segments finished after the next hand-over, of which there are two in a second.
    pub fn write_soon(&self) {
        self.shared.wanted.store(true, Relaxed);
    }

    /// How it goes.
    pub fn status(&self) -> Status {
        let s = &self.shared;
        Status {
            running: self.threads.as_ref().is_some_and(|(sampling, _)| !sampling.is_finished()),
            ts_from: s.ts_from.load(Relaxed),
            ts_now: self.ts_to.unwrap_or_else(monotonic_ns),
            ticks: s.ticks.load(Relaxed),
            missed: s.missed.load(Relaxed),
            torn: s.torn.load(Relaxed),
            unverified: s.unverified.load(Relaxed),
            sessions: s.sessions.load(Relaxed),
            rows: s.rows.load(Relaxed),
            bytes_written: s.bytes.load(Relaxed),
            cpu_ns: s.sampler_cpu_ns.load(Relaxed) + s.writer_cpu_ns.load(Relaxed),
            realtime: s.realtime.load(Relaxed),
        }
    }

    /// Runs `f` on the error that ended the recording, if one did.
    pub fn with_error<T>(&self, f: impl FnOnce(Option<&Error>) -> T) -> T {
        f(self.shared.error.lock().as_ref())
    }

    /// Stops, writes everything out and joins. Stopping again changes nothing.
    pub fn stop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.join();
        self.ts_to.get_or_insert_with(monotonic_ns);
        let Some(mut tables) = self.tables.get_mut().take() else { return };
        if let Err(error) = tables.end() {
            self.shared.fail(error.into());
        }
        self.written = tables.stats();
    }

    fn join(&mut self) {
        let Some((sampling, writer)) = self.threads.take() else { return };
        match (sampling.join(), writer.join()) {
            (Ok(left), Ok(tables)) => {
                self.written = tables.stats();
                (self.left, self.tables) = (left, Mutex::new(Some(tables)));
            }
            (Err(panic), _) => self.shared.fail(Error::fault("sampled the server", &*panic)),
            (_, Err(panic)) => self.shared.fail(Error::fault("wrote the capture", &*panic)),
        }
    }

    /// Start of the last pass that counts, when the recording has ended for want of the server.
    pub fn last_seen(&mut self) -> Option<i64> {
        self.join();
        self.left.last_seen()
    }

    /// End of the window; None while recording.
    pub fn ts_to(&self) -> Option<i64> {
        self.ts_to
    }

    /// Rows, bytes and segments by table, known after the stop.
    pub fn written(&self) -> &BTreeMap<&'static str, Stats> {
        &self.written
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the attach found out, for the manifest.
#[derive(Debug, Clone)]
#[allow(missing_docs)]
pub struct Description {
    pub server_version_num: u32,
    pub server_version: String,
    pub max_connections: Option<u32>,
    pub shared_buffers_bytes: u64,
    pub mapped: bool,
    pub not_mapped_why: String,
    pub private_memory: bool,
    pub held_locks: bool,
    pub next_xid: bool,
    pub checks: Vec<leadline_shm::attach::Check>,
}

impl Description {
    fn of(a: &Attached) -> Self {
        Description {
            server_version_num: a.version_num,
            server_version: a.version_text.clone(),
            max_connections: a.max_connections,
            shared_buffers_bytes: u64::from(a.anchors.buffers) * u64::from(a.anchors.block_size),
            mapped: a.not_mapped_why.is_empty(),
            not_mapped_why: a.not_mapped_why.clone(),
            private_memory: a.anchors.buffer_usage.is_some() && a.anchors.wal_usage.is_some(),
            held_locks: a.anchors.held_locks.is_some(),
            next_xid: a.anchors.next_xid.is_some(),
            checks: a.checks.clone(),
        }
    }
}
