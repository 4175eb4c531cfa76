//! Where the records of each page are: shared out by partition, in order, and in a file when memory does not hold them.

pub(crate) mod by_page;
pub(crate) mod partitioned;
pub(crate) mod record_refs;
pub(crate) mod spill;
