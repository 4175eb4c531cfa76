//! What is read before anything is written: the WAL, and the files that say where it begins.

pub(crate) mod archive;
pub(crate) mod label;
pub(crate) mod scan;
pub(crate) mod state;
pub(crate) mod xact;
pub(crate) mod xids;
