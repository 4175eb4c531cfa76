//! Portals of PostgreSQL: which Execute goes on with a result of which a part was read before.
//!
//! A driver that wants one row sends Bind and Execute with a limit, and never asks for the rest: that is no reading in parts.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Bytes of a name by which a portal is known.
pub const MOST_NAME: usize = 64;
/// Portals that wait for their first Execute.
const MOST_FRESH: usize = 64;

/// Portals of a connection that were bound and not run yet, the oldest first; by a hash of their name.
#[derive(Debug, Default)]
pub struct Portals {
    fresh: VecDeque<u64>,
}

impl Portals {
    /// Bind: the body begins with the name of the portal.
    pub fn bound(&mut self, body: &[u8]) {
        let name = name_of(body);
        self.fresh.retain(|fresh| *fresh != name);
        if self.fresh.len() >= MOST_FRESH {
            self.fresh.pop_front();
        }
        self.fresh.push_back(name);
    }

    /// Execute: whether it goes on with a portal that was run before.
    pub fn executed(&mut self, body: &[u8]) -> bool {
        let name = name_of(body);
        match self.fresh.iter().position(|fresh| *fresh == name) {
            Some(place) => {
                self.fresh.remove(place);
                false
            }
            None => true,
        }
    }
}

fn name_of(body: &[u8]) -> u64 {
    let name = body.split(|byte| *byte == 0).next().unwrap_or(&[]);
    let mut hasher = DefaultHasher::new();
    name[..name.len().min(MOST_NAME)].hash(&mut hasher);
    hasher.finish()
}
