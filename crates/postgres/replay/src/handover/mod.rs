//! What is written once all pages are, so that the server finds nothing to replay.

pub(crate) mod checkpoint;
pub(crate) mod multixact;
pub(crate) mod origins;
pub(crate) mod slru;
pub(crate) mod status;
