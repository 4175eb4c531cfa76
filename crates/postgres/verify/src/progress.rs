//! How far a check is, for who waits for it.

use std::sync::atomic::AtomicU64;

/// How far a check is.
#[derive(Debug, Default)]
#[allow(missing_docs)]
pub struct Progress {
    pub relations: AtomicU64,
    pub total_relations: AtomicU64,
}
