"""The compiled part of leadline (crates/py). Every error is a leadline.errors.LeadlineError."""

from leadline._core import (
    backups,
    calltrace,
    capture,
    catalog,
    datadir,
    follow,
    host,
    kernel,
    load,
    net,
    pages,
    pending,
    recorder,
    redo,
    replay,
    rows,
    storage,
    wal,
    wire,
)

__all__ = [
    "VERSION",
    "backups",
    "calltrace",
    "capture",
    "catalog",
    "datadir",
    "follow",
    "host",
    "kernel",
    "load",
    "net",
    "pages",
    "pending",
    "recorder",
    "redo",
    "replay",
    "rows",
    "storage",
    "wal",
    "wire",
]

VERSION: str
