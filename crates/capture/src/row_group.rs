//! Where a row group ends: so that a query over a few seconds of a long segment reads only the row groups of these seconds.

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};

use crate::spec::TableSpec;

/// A row group covers no more than this, when it has rows enough to be worth reading alone.
const LONGEST_NS: i64 = 5_000_000_000;

/// Fewer rows than this are not worth a row group of their own: each costs a dictionary and an entry for each column.
const FEWEST_ROWS: usize = 16_384;

/// Most rows, of a table whose clock does not count nanoseconds or which has none.
const MOST_ROWS: usize = 262_144;

/// The row group being made: which rows it has so far.
pub(crate) struct Bounds {
    /// The column of the clock when it counts nanoseconds.
    clock: Option<usize>,
    rows: usize,
    first: Option<i64>,
}

impl Bounds {
    pub(crate) fn new(spec: &TableSpec) -> Bounds {
        let clock = spec.columns.iter().position(|c| c.name == spec.clock && c.unit == "ns");
        Bounds { clock, rows: 0, first: None }
    }

    pub(crate) fn clear(&mut self) {
        (self.rows, self.first) = (0, None);
    }

    /// Whether the row group ends before this batch, which then begins the next one.
    pub(crate) fn ends_before(&mut self, batch: &RecordBatch) -> bool {
        let (from, to) = self.extent(batch);
        let too_long = match (self.first, to) {
            (Some(first), Some(to)) => to.saturating_sub(first) > LONGEST_NS,
            _ => false,
        };
        let ends = self.rows >= MOST_ROWS || (too_long && self.rows >= FEWEST_ROWS);
        if ends {
            self.clear();
        }
        self.rows += batch.num_rows();
        self.first = self.first.or(from);
        ends
    }

    /// First and last time of a batch; rows come in the order of their clock.
    fn extent(&self, batch: &RecordBatch) -> (Option<i64>, Option<i64>) {
        let times = self.clock.and_then(|at| batch.columns().get(at)).and_then(|c| c.as_primitive_opt::<Int64Type>());
        let values = times.filter(|t| t.null_count() == 0).map_or(&[][..], |t| &t.values()[..]);
        (values.first().copied(), values.last().copied())
    }
}
