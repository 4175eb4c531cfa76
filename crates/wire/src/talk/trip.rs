//! A round trip: what a client sends while it is its turn, and what the server answers until the turn comes back.

/// What a round trip was for; of several things the last of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum Purpose {
    /// Nothing is known but bytes and times.
    #[default]
    Unknown,
    Terminate,
    Encryption,
    Startup,
    Authentication,
    Cancel,
    Sync,
    Prepare,
    Simple,
    Extended,
    Fetch,
    Replication,
    CopyOut,
    CopyIn,
    Command,
}

impl Purpose {
    /// As the tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Purpose::Unknown => "unknown",
            Purpose::Terminate => "terminate",
            Purpose::Encryption => "encryption request",
            Purpose::Startup => "start-up",
            Purpose::Authentication => "authentication",
            Purpose::Cancel => "cancel",
            Purpose::Sync => "sync",
            Purpose::Prepare => "prepare",
            Purpose::Simple => "simple query",
            Purpose::Extended => "extended query",
            Purpose::Fetch => "fetch",
            Purpose::Replication => "replication",
            Purpose::CopyOut => "copy out",
            Purpose::CopyIn => "copy in",
            Purpose::Command => "command",
        }
    }

    /// It belongs to making or ending the connection, not to its work.
    pub fn is_setup(self) -> bool {
        matches!(
            self,
            Purpose::Terminate | Purpose::Encryption | Purpose::Startup | Purpose::Authentication | Purpose::Cancel
        )
    }
}

/// One round trip. Times of answers are none while there is none. Times are in order: of a pipeline, what is asked after the answer
/// began moves none of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Trip {
    /// When the first byte of the request was seen.
    pub ts: i64,
    /// The last byte of the request before the answer began.
    pub request_last: i64,
    pub first: Option<i64>,
    pub last: Option<i64>,
    /// From the last answer before to this request.
    pub client_gap: Option<i64>,
    pub request_bytes: u64,
    pub request_segments: u32,
    pub response_bytes: u64,
    pub response_segments: u32,
    pub retransmits: u32,
    pub purpose: Purpose,
    /// Statements that were to be run: Query and Execute.
    pub statements: u32,
    /// Execute with a limit of rows, those of them that go on with a result that was read in part, and the answers that there are more.
    pub fetches: u32,
    pub continued: u32,
    pub suspended: u32,
    /// Cursors that were declared, and FETCH statements that were answered.
    pub cursors: u32,
    pub cursor_fetches: u32,
    pub rows: u64,
    /// Requests that were sent while others were not answered.
    pub pipelined: u32,
    /// Transactions that ended.
    pub transactions: u32,
    pub errors: u32,
    /// The connection was in a transaction when it ended.
    pub in_transaction: bool,
    /// Data was held back until a delayed acknowledgement came.
    pub held_ns: i64,
}

impl Trip {
    /// A request begins. `answered`: the end of the answer before.
    pub fn begin(ts: i64, answered: Option<i64>) -> Trip {
        let client_gap = answered.map(|last| ts.saturating_sub(last).max(0));
        Trip { ts, request_last: ts, client_gap, ..Trip::default() }
    }

    /// A segment of the request.
    pub fn ask(&mut self, ts: i64, bytes: u64) {
        if self.first.is_none() {
            self.request_last = self.request_last.max(ts);
        }
        self.request_bytes += bytes;
        self.request_segments += 1;
    }

    /// A segment of the answer. One that came before its turn is answered when its turn has come.
    pub fn answer(&mut self, ts: i64, bytes: u64) {
        let ts = ts.max(self.last.unwrap_or(self.request_last));
        self.first.get_or_insert(ts);
        self.last = Some(ts);
        self.response_bytes += bytes;
        self.response_segments += 1;
    }

    /// Whether no time in it is negative.
    pub fn is_in_order(&self) -> bool {
        let (first, last) = (self.first.unwrap_or(self.request_last), self.last.unwrap_or(i64::MAX));
        self.ts <= self.request_last
            && self.request_last <= first
            && first <= last
            && self.client_gap.is_none_or(|gap| gap >= 0)
            && self.held_ns >= 0
    }
}
