//! Seek times of a disk.

use leadline_errors::{Error, Kind, Result};

/// Seek time over a share of all tracks: `first + root * sqrt(share) + line * share`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seek {
    first_ns: f64,
    root_ns: f64,
    line_ns: f64,
}

impl Seek {
    /// The one curve of this form that has the three times: between random tracks the mean of the root of the share is 8/15, of the
    /// share 1/3.
    pub fn of(ms: [f64; 3]) -> Result<Seek> {
        let [first, average, full] = ms;
        let root = 5.0 * (average - first - (full - first) / 3.0);
        let line = full - first - root;
        if first > average || average > full || root < 0.0 || line < -root / 2.0 {
            return Err(Error::new(
                Kind::Invalid,
                format!("no disk has the seek times {first}, {average} and {full} ms"),
            )
            .detail("they are those to the next track, on average between random tracks, and over all tracks")
            .hint("the average is some half of the longest, such as 0.2, 3.4, 6.6"));
        }
        Ok(Seek { first_ns: first * 1e6, root_ns: root * 1e6, line_ns: line * 1e6 })
    }

    /// Of a seek over this share of all tracks.
    pub fn ns(&self, share: f64) -> f64 {
        if share <= 0.0 {
            return 0.0;
        }
        self.first_ns + self.root_ns * share.sqrt() + self.line_ns * share
    }

    /// To the next track.
    pub fn first_ns(&self) -> f64 {
        self.first_ns
    }
}
