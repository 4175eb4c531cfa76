//! Pages rolled forward, in memory and from files.

pub(crate) mod apply;
pub(crate) mod counts;
pub(crate) mod page_replay;
pub(crate) mod pool;
#[allow(unsafe_code)]
pub(crate) mod prefetch;
