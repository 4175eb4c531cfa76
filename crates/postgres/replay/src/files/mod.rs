//! The files of a data directory, as recovery changes them.

pub(crate) mod cluster;
pub(crate) mod control;
pub(crate) mod directories;
pub(crate) mod fork_files;
pub(crate) mod free_space;
pub(crate) mod lock;
pub(crate) mod open_files;
pub(crate) mod truncations;
pub(crate) mod unlogged;
pub(crate) mod writer;
