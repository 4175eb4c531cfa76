"""What a data directory says of itself."""

from typing import TypedDict, type_check_only

__all__ = ["DEFAULT_BLOCK_SIZE", "MAJORS", "block_sizes", "condition"]

def block_sizes(data_dir: str) -> tuple[int, int]:
    """What a data directory's pg_control says of its pages: bytes of a block, and of a block of the log."""

DEFAULT_BLOCK_SIZE: int
"""Bytes of a block, and of a block of the log, unless the server was built otherwise."""

MAJORS: tuple[int, int]
"""The first and the last major whose data directories are known."""

@type_check_only
class Remark(TypedDict):
    """One thing that a reader of the files should know. is_error: they are damaged, not only behind."""

    name: str
    is_error: bool
    message: str
    hint: str

@type_check_only
class Condition(TypedDict):
    """server: running, stopped, stopped in recovery, crashed, copied, restoring, unknown. behind_since: from which LSN on the log may
    not be in the files; None when all of it is. remarks: errors first; empty when the files are whole and nobody writes them."""

    root: str
    server: str
    pid: int | None
    behind_since: str | None
    has_backup_label: bool
    has_standby_signal: bool
    has_recovery_signal: bool
    remarks: list[Remark]

def condition(path: str) -> Condition | None:
    """How well the data directory at `path` is, or the one that the file `path` is in; None when it is in none."""
