"""The compiled part of leadline (crates/py). Every error is a leadline.errors.LeadlineError."""

from leadline._core import (
    calltrace,
    capture,
    catalog,
    datadir,
    follow,
    host,
    kernel,
    net,
    pages,
    pending,
    recorder,
    redo,
    replay,
    rows,
    wal,
    wire,
)

__all__ = [
    "VERSION",
    "calltrace",
    "capture",
    "catalog",
    "datadir",
    "follow",
    "host",
    "kernel",
    "net",
    "pages",
    "pending",
    "recorder",
    "redo",
    "replay",
    "rows",
    "wal",
    "wire",
]

VERSION: str
