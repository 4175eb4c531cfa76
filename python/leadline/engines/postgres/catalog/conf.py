"""Settings from a server's files, without a connection: postgresql.conf with its includes, postgresql.auto.conf, the command line.

Only what is set there is known: defaults, settings per database or role and changes not yet reloaded are not.
Values are given as pg_settings shows them: in the parameter's own unit. Source: guc-file.l, guc.c.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from leadline._core.datadir import DEFAULT_BLOCK_SIZE, block_sizes
from leadline.engines.postgres import postmaster
from leadline.engines.postgres.catalog.secrets import mask_setting
from leadline.errors import LeadlineError
from leadline.host import proc

if TYPE_CHECKING:
    from leadline.engines.postgres.catalog.sql import Row

_UNITS = {  # unit in pg_settings -> parameters that have it (12 to 18)
    "block": """backend_flush_after bgwriter_flush_after checkpoint_flush_after commit_timestamp_buffers effective_cache_size
        io_combine_limit io_max_combine_limit min_parallel_index_scan_size min_parallel_table_scan_size multixact_member_buffers
        multixact_offset_buffers notify_buffers serializable_buffers shared_buffers subtransaction_buffers temp_buffers
        transaction_buffers""",
    "wal block": "wal_buffers wal_writer_flush_after",
    "B": "log_parameter_max_length log_parameter_max_length_on_error track_activity_query_size wal_decode_buffer_size",
    "MB": "max_slot_wal_keep_size max_wal_size min_dynamic_shared_memory min_wal_size wal_keep_size",
    "kB": """autovacuum_work_mem gin_pending_list_limit huge_page_size log_rotation_size log_temp_files logical_decoding_work_mem
        maintenance_work_mem max_stack_depth temp_file_limit vacuum_buffer_usage_limit wal_skip_threshold work_mem""",
    "min": "log_rotation_age old_snapshot_threshold wal_summary_keep_time",
    "ms": """autovacuum_vacuum_cost_delay bgwriter_delay client_connection_check_interval deadlock_timeout
        idle_in_transaction_session_timeout idle_session_timeout lock_timeout log_autovacuum_min_duration log_min_duration_sample
        log_min_duration_statement log_startup_progress_interval max_standby_archive_delay max_standby_streaming_delay
        recovery_min_apply_delay statement_timeout tcp_user_timeout transaction_timeout vacuum_cost_delay wal_receiver_timeout
        wal_retrieve_retry_interval wal_sender_timeout wal_writer_delay""",
    "s": """archive_timeout authentication_timeout autovacuum_naptime checkpoint_timeout checkpoint_warning
        idle_replication_slot_timeout post_auth_delay pre_auth_delay tcp_keepalives_idle tcp_keepalives_interval
        wal_receiver_status_interval""",
}
UNIT_OF = {name: unit for unit, names in _UNITS.items() for name in names.split()}
_BYTES = {"B": 1, "kB": 1024, "MB": 1024**2, "GB": 1024**3, "TB": 1024**4}
_MICROSECONDS = {"us": 1, "ms": 1000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_VALUE = re.compile(r"([-+]?(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?))\s*([A-Za-z]*)")
_LINE = re.compile(r"""\s*([A-Za-z_][\w.]*)\s*(?:=|\s)\s*('(?:[^'\\]|''|\\.)*'|[^\s#'=]\S*)""")
_SHORT = {"B": "shared_buffers", "N": "max_connections", "p": "port", "h": "listen_addresses", "k": "unix_socket_directories"}
_BOOL = {"true": "on", "yes": "on", "false": "off", "no": "off"}
DEFAULT_SIZES = (DEFAULT_BLOCK_SIZE, DEFAULT_BLOCK_SIZE)  # of a block, and of a block of the log
Place = Callable[[str], Path]


def unit_of(name: str, block_sizes: tuple[int, int] = DEFAULT_SIZES) -> str | None:
    """The unit that pg_settings shows. block_sizes: bytes of a block, and of a block of the log."""
    unit = UNIT_OF.get(name)
    blocks = dict(zip(("block", "wal block"), block_sizes))
    return f"{blocks[unit] // 1024}kB" if unit in blocks else unit


def normal_value(name: str, value: str, block_sizes: tuple[int, int] = DEFAULT_SIZES) -> str:
    """A value as pg_settings shows it: 2GB of max_wal_size is 2048. Values that do not fit stay as written."""
    unit = unit_of(name, block_sizes)
    sizes = {**_BYTES, **{f"{size // 1024}kB": size for size in block_sizes}}
    match = _VALUE.fullmatch(value)
    if unit is None or match is None:
        return _BOOL.get(value.lower(), value)
    number, given = float(int(match.group(1), 16) if "x" in match.group(1).lower() else match.group(1)), match.group(2)
    for scale in (sizes, _MICROSECONDS):
        if unit in scale and (given or unit) in scale:
            number = number * scale[given or unit] / scale[unit]
            return str(round(number)) if number == round(number) or unit in sizes else f"{number:g}"
    return value


def settings_of(pid: int) -> tuple[list[Row], list[str]]:
    """Rows of table setting for a running server, and notes."""
    arguments = (proc.read_text(proc.PROC / str(pid) / "cmdline") or "").split("\0")
    given = dict(command_line(arguments[1:]))
    data_dir = postmaster.data_dir_of(pid)
    if data_dir is None:
        return [], ["settings were not read: no permission to find the data directory of the server"]

    def place(path: str) -> Path:
        """A path as the server means it, reached through its own file tree."""
        inside = PurePosixPath(path)
        if not inside.is_absolute():
            return postmaster.data_path(pid) / path
        return (
            postmaster.data_path(pid) / inside.relative_to(data_dir) if inside.is_relative_to(data_dir) else proc.root_path(pid, path)
        )

    found: dict[str, tuple[str, str]] = {}
    notes: list[str] = []
    for file in (given.get("config_file", "postgresql.conf"), "postgresql.auto.conf"):
        for name, value in read_conf(file, place, notes):
            found[name] = (value, "file")
    found |= {name: (value, "command line") for name, value in given.items()}
    notes.append("settings were read from the server's files: only those set there, as written at the time of the capture")
    try:
        sizes = block_sizes(str(postmaster.data_path(pid)))
    except LeadlineError as e:
        sizes = DEFAULT_SIZES
        notes.append(f"blocks of {DEFAULT_BLOCK_SIZE // 1024} kB are assumed in the settings: {e.message}")
    rows = [
        (name, mask_setting(name, normal_value(name, value, sizes)), unit_of(name, sizes) or "", source, "", "", False)
        for name, (value, source) in sorted(found.items())
    ]
    return rows, notes


def command_line(arguments: list[str]) -> Iterator[tuple[str, str]]:
    """Settings among a postmaster's arguments: -c name=value, --name=value and the short options."""
    rest = iter(arguments)
    for argument in rest:
        text = ""
        if argument.startswith("--"):
            text = argument[2:]
        elif argument.startswith("-c"):
            text = argument[2:] or next(rest, "")
        elif argument[:1] == "-" and argument[1:2] in _SHORT:
            yield _SHORT[argument[1]], argument[2:] or next(rest, "")
        name, equals, value = text.partition("=")
        if equals:
            yield name.strip().replace("-", "_"), value


def read_conf(file: str, place: Place, notes: list[str], depth: int = 0) -> Iterator[tuple[str, str]]:
    """name and value of each setting of a configuration file, includes followed. file: as the server names it."""
    text = proc.read_text(place(file))
    if text is None:
        notes.append(f"cannot read configuration file {file}: missing, or no permission")
        return
    directory = PurePosixPath(file).parent
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, value = match.group(1).lower(), unquote(match.group(2))
        if name in ("include", "include_if_exists", "include_dir"):
            if depth >= 10:
                notes.append(f"configuration file {file}: includes nested too deep")
                continue
            inner = str(directory / value)
            if name == "include_dir":
                names = sorted(p.name for p in place(inner).glob("*.conf") if not p.name.startswith("."))
                for entry in names:
                    yield from read_conf(f"{inner}/{entry}", place, notes, depth + 1)
            elif name == "include" or place(inner).exists():
                yield from read_conf(inner, place, notes, depth + 1)
        else:
            yield name, value


def unquote(text: str) -> str:
    """A value of a configuration file without its quotes."""
    if not text.startswith("'"):
        return text
    return re.sub(r"''|\\(.)", lambda m: m.group(1) or "'", text[1:-1])
