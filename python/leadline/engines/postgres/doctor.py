"""What can be measured of a PostgreSQL server, for `doctor`: the shared-memory probe is attached once, calibrated and let go."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator

import psycopg

from leadline._core.datadir import MAJORS
from leadline.engines.check import INFO, LIMITED, MISSING, OK, Check, judge
from leadline.engines.postgres import postmaster
from leadline.engines.postgres.catalog import conf
from leadline.engines.postgres.catalog.connection import Connection, connect
from leadline.engines.postgres.target import PostgresServer, socket_dsn
from leadline.errors import LeadlineError
from leadline.figures import one_line
from leadline.host import proc

KNOWN_MAJORS = range(MAJORS[0], MAJORS[1] + 1)
TIER_SHM, TIER_SQL = "shared memory", "SQL"


def checks_of(target: PostgresServer) -> Iterator[Check]:
    if target.pid is None:
        yield _remote(target)
    else:
        yield from _server_checks(target)
        yield from _memory_checks(target)
    yield from _sql_checks(target)


def servers_here() -> list[Check]:
    found = postmaster.local_postmasters()
    if not found:
        return [
            Check("servers", "PostgreSQL", INFO, "no server found on this host", "", "leadline doctor postgresql://USER@HOST/DB")
        ]
    return [
        Check("servers", f"pid {pid}", INFO, postmaster.data_dir_of(pid) or "data directory hidden", "", f"leadline doctor {pid}")
        for pid in found
    ]


def _remote(target: PostgresServer) -> Check:
    return Check(
        "capture", TIER_SHM, MISSING, "; ".join(target.notes) or "not on this host",
        "buffers, LWLock holders, rates over 10 Hz", "run leadline on the host of the server",
    )  # fmt: skip


def _server_checks(target: PostgresServer) -> Iterator[Check]:
    pid = target.pid
    assert pid is not None
    uid = proc.uid_of(pid)
    yield Check("server", "postmaster", OK, f"pid {pid}, uid {uid}" + (f", {target.data_dir}" if target.data_dir else ""))
    major = major_of(target)
    if major is None:
        yield Check("server", "major version", INFO, "unknown without access to its files or a connection")
    else:
        effect = f"memory layouts are known only for {KNOWN_MAJORS[0]} to {KNOWN_MAJORS[-1]}; sampling over SQL works"
        yield judge("server", "major version", major in KNOWN_MAJORS, f"PostgreSQL {major}", effect, bad=LIMITED)
    try:
        binary = str((proc.PROC / str(pid) / "exe").readlink())
    except OSError:
        yield Check("server", "binary", MISSING, "cannot read /proc/PID/exe", "symbols and memory layouts are unknown", as_owner(uid))
    else:
        note = " (replaced on disk since it started; the running binary is read)" if binary.endswith("(deleted)") else ""
        yield Check("server", "binary", OK, binary.removesuffix(" (deleted)") + note)
    kind = shared_memory_kind(pid)
    found = kind or "cannot read /proc/PID/maps"
    yield judge("server", "shared memory", kind is not None, found, "memory cannot be read", as_owner(uid))


def major_of(target: PostgresServer) -> int | None:
    """The server's major from what SQL said, else from its data directory."""
    if target.server_version_num is not None:
        return target.server_version_num // 10_000
    if target.pid is None:
        return None
    text = (proc.read_text(postmaster.data_path(target.pid) / "PG_VERSION") or "").strip()
    return int(text) if text.isdigit() else None


def as_owner(uid: int | None) -> str:
    return f"sudo leadline ...   or   sudo -u '#{uid}' leadline ..." if uid is not None else "sudo leadline ..."


def shared_memory_kind(pid: int) -> str | None:
    """What kind of mapping the largest shared one of the server is, with its size; None when it may not be seen."""
    best: tuple[int, str] | None = None
    for line in (proc.read_text(proc.PROC / str(pid) / "maps") or "").splitlines():
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) ..(.)s \S+ \S+ \d+\s*(.*)", line)
        if match and (best is None or int(match.group(2), 16) - int(match.group(1), 16) > best[0]):
            best = (int(match.group(2), 16) - int(match.group(1), 16), match.group(4))
    if best is None:
        return None
    size, name = best
    kinds = (("/dev/zero", "mmap"), ("/anon_hugepage", "mmap with huge pages"), ("/SYSV", "System V"))
    kind = next((label for prefix, label in kinds if name.startswith(prefix)), name or "mmap")
    return f"{kind}, {size / 2**20:.0f} MB"


def _memory_checks(target: PostgresServer) -> Iterator[Check]:
    """Attaches the probe for a moment: the one test that counts."""
    assert target.pid is not None
    from leadline import _core

    try:
        with tempfile.TemporaryDirectory(prefix="leadline-doctor-") as scratch:
            found = _core.recorder.Recorder(scratch, target.pid, 10.0).describe()
    except LeadlineError as e:
        why = e.message + (f": {e.detail}" if e.detail else "")
        yield Check("capture", TIER_SHM, MISSING, why, "buffers, LWLock holders, rates over 10 Hz", e.hint)
        return
    checks = found["layout_checks"]
    passed = sum(1 for check in checks if check["result"] == "passed")
    access = found["access"]
    mapped = access["shared_memory"] == "map_files"
    effect = access.get("why") or "copying costs more CPU than mapping"
    # The directory of the links to its mappings is its owner's.
    others = "" if proc.uid_of(target.pid) == os.geteuid() else " and CAP_DAC_READ_SEARCH"
    command = f"needs CAP_CHECKPOINT_RESTORE{others}: sudo leadline ..."
    yield Check("capture", TIER_SHM, OK, f"calibrated: {passed} of {len(checks)} layout checks passed; 100 Hz, bursts of 1 kHz")
    yield judge("memory", "access", mapped, f"shared memory by {access['shared_memory']}", effect, command, LIMITED)
    private = bool(access["private_memory"])
    effect = "LWLock holders; blocks, temporary blocks and WAL per session"
    found_private = "readable" if private else "not readable"
    yield judge("memory", "private memory", private, found_private, effect, as_owner(proc.uid_of(target.pid)))
    status = {"ok": OK, "partial": LIMITED, "off": MISSING}
    for name, probe in found["probes"].items():
        if probe["status"] != "ok":
            yield Check("memory", f"probe {name}", status.get(probe["status"], INFO), probe["status"], probe["why"], probe["hint"])


_RIGHTS_SQL = """
select quote_ident(current_user), pg_has_role(current_user, 'pg_read_all_stats', 'usage'),
       pg_has_role(current_user, 'pg_read_all_settings', 'usage'), current_setting('max_connections')::int,
       (select count(*) from pg_stat_get_activity(null) where backend_type = 'client backend')::int,
       exists (select from pg_extension where extname = 'pg_stat_statements')
"""
_WANTED = (  # setting, value that is needed, what is lost otherwise
    ("track_activities", "on", "sessions do not publish states, waits and statements"),
    ("compute_query_id", "on", "statements are identified by a hash of their text"),
    ("track_io_timing", "on", "the server does not measure read and write times"),
)


def _sql_checks(target: PostgresServer) -> Iterator[Check]:
    dsn = target.dsn if target.dsn is not None else socket_dsn(target)
    if dsn is None:
        yield Check(
            "capture", TIER_SQL, MISSING, "no connection string was given", "names and counters come from files", "leadline doctor DSN"
        )
        yield from _setting_checks(_file_settings(target), major_of(target), None)
        return
    try:
        conn = connect(dsn, timeout_s=3)
    except LeadlineError as e:
        given = "" if target.dsn is not None else "tried its own socket: "
        yield Check("capture", TIER_SQL, MISSING, f"{given}{e.message}: {e.detail}", "names and counters come from files", e.hint)
        yield from _setting_checks(_file_settings(target), major_of(target), None)
        return
    with conn:
        yield from _connected_checks(conn)


def _connected_checks(conn: Connection) -> Iterator[Check]:
    try:
        row = conn.execute(_RIGHTS_SQL).fetchone()
        values: dict[str, str] = dict(conn.execute("select name, setting from pg_settings").fetchall())
    except psycopg.Error as e:
        yield Check("capture", TIER_SQL, MISSING, one_line(str(e)))
        return
    assert row is not None
    user, all_stats, all_settings, max_connections, connected, has_statements = row
    grant = f"grant pg_monitor to {user}"
    effect = "other roles' states, waits and statements are hidden"
    yield judge("capture", TIER_SQL, all_stats, f"connected as {user}, 1 to 10 Hz", effect, grant, LIMITED)
    if not all_settings:
        yield Check("sql", "settings", LIMITED, f"{user} has no pg_read_all_settings", "some settings are hidden", grant)
    yield from _setting_checks(values, conn.info.server_version // 10_000, conn)
    loaded = "pg_stat_statements" in values.get("shared_preload_libraries", "")
    found = "installed" if has_statements and loaded else "loaded, but not created in this database" if loaded else "not loaded"
    effect = "no counters per statement (samples still name statements)"
    load = "alter system set shared_preload_libraries = 'pg_stat_statements' (then restart)"
    yield judge(
        "sql", "pg_stat_statements", has_statements and loaded, found, effect, "create extension pg_stat_statements" if loaded else load
    )
    yield Check("sql", "connections", INFO, f"{connected} of max_connections {max_connections} in use")


def _file_settings(target: PostgresServer) -> dict[str, str]:
    if target.pid is None:
        return {}
    rows, _ = conf.settings_of(target.pid)
    return {row[0]: row[1] for row in rows}


def _setting_checks(values: dict[str, str], major: int | None, conn: Connection | None) -> Iterator[Check]:
    defaults = {"track_activities": "on", "compute_query_id": "auto", "track_io_timing": "off"}
    for name, wanted, effect in _WANTED:
        if name == "compute_query_id" and (major or 0) < 14:
            continue
        value = values.get(name) or (defaults[name] if conn is None else "")
        source = "" if conn is not None else ", by its files"
        # auto turns on with pg_stat_statements or another module that asks for it
        good = value == wanted or (value == "auto" and "pg_stat_statements" in values.get("shared_preload_libraries", ""))
        status = OK if good else MISSING if name == "track_activities" else LIMITED
        command = "" if good else f"alter system set {name} = {wanted}; select pg_reload_conf()"
        yield Check("sql", name, status, f"{value}{source}", "" if good else effect, command)
    if major is not None and conn is None and major not in KNOWN_MAJORS:
        yield Check(
            "server", "catalog files", MISSING, f"not known for PostgreSQL {major}", "names stay numbers", "give a connection string"
        )
