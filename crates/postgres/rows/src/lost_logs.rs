//! Which files of pg_xact and pg_multixact are missing, too short or empty, by the bounds that pg_control gives.
//!
//! Of a server that runs or crashed the oldest files may have been removed since the checkpoint: there the first one that is there is
//! taken for the oldest.

use std::path::PathBuf;

use leadline_datadir::{DataDir, Transactions};

use crate::slru::{Slru, PAGES};
use crate::xact::Xacts;

/// A file of which a part or all is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostLog {
    pub path: PathBuf,
    /// What it is to tell.
    pub wanted: String,
    pub found: String,
}

/// What is lost of them; nothing where pg_control does not say what there should be.
pub(crate) fn lost_logs(dir: &DataDir) -> Vec<LostLog> {
    let Some(about) = dir.transactions else { return Vec::new() };
    let size = dir.block_size as u32;
    let mut xacts = Xacts::new(dir);
    let log = Log { dir, about, name: "pg_xact", per_page: size * 4, what: "the status of transactions" };
    let mut lost = log.lost(about.oldest_xid, about.next_xid, |page| xacts.is_wiped(page));
    if about.oldest_multi == about.next_multi {
        return lost;
    }
    let name = "pg_multixact/offsets";
    let mut offsets = Slru::new(dir, name);
    let log = Log { dir, about, name, per_page: size / 4, what: "where the members are of multixacts" };
    lost.extend(log.lost(about.oldest_multi, about.next_multi, |page| offsets.is_blank(page)));
    let (page, at) = (about.oldest_multi / (size / 4), about.oldest_multi % (size / 4) * 4);
    // Where that of the oldest one is lost, only the last members are known to be needed.
    let last = about.next_multi_offset.wrapping_sub(1);
    let oldest = offsets.u32(page, at as usize).filter(|offset| *offset != 0).unwrap_or(last);
    let name = "pg_multixact/members";
    let mut members = Slru::new(dir, name);
    let log = Log { dir, about, name, per_page: size / 20 * 4, what: "the transactions that are members" };
    lost.extend(log.lost(oldest, about.next_multi_offset, |page| members.is_blank(page)));
    lost
}

struct Log<'d> {
    dir: &'d DataDir,
    about: Transactions,
    name: &'static str,
    per_page: u32,
    what: &'static str,
}

impl Log<'_> {
    /// `oldest` and before `next`: what must be there.
    fn lost(&self, oldest: u32, next: u32, mut is_wiped: impl FnMut(u32) -> bool) -> Vec<LostLog> {
        let (newest, per_file) = (next.wrapping_sub(1), self.per_page * PAGES);
        // Where the numbers have begun again, those since then are looked at.
        let oldest = if oldest <= newest { oldest } else { 0 };
        let path = |file: u32| self.dir.root.join(self.name).join(format!("{file:04X}"));
        let (mut first, last) = (oldest / per_file, newest / per_file);
        if !self.about.is_final {
            first = (first..=last).find(|file| path(*file).exists()).unwrap_or(last);
        }
        let mut log = Slru::new(self.dir, self.name);
        let mut lost = Vec::new();
        for file in first..=last {
            let from = oldest.max(file.saturating_mul(per_file));
            let to = newest.min(file.saturating_mul(per_file).saturating_add(per_file - 1));
            let pages = from / self.per_page..=to / self.per_page;
            let why =
                pages.into_iter().find_map(|page| log.end(page).or_else(|| is_wiped(page).then(|| log.why(page))));
            if let Some(found) = why {
                lost.push(LostLog { path: path(file), wanted: format!("{} {from} to {to}", self.what), found });
            }
        }
        lost
    }
}
