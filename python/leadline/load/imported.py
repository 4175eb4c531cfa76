"""Loads that another tool has run, as tables of a capture: each transaction as it was logged, and the sums that our own loads have.

DuckDB reads the logs and writes the tables, so that a log of many million lines takes seconds and little memory.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline.capture.directory import new_capture
from leadline.capture.making import Making
from leadline.capture.manifest import Clock, ProbeState, Target
from leadline.capture.reader import memory_database
from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.tables import all_tables, duckdb_type

if TYPE_CHECKING:
    from leadline._core.capture import Written

_WORDS = ("skipped", "failed", "serialization", "deadlock")
_N = r"\d{1,15}"  # fits into the columns of the table
_SIXTH = rf"^\d{{1,9}} {_N} ({_N}|{'|'.join(_WORDS)}) \d{{1,9}} \d{{9,10}} \d{{1,6}}( {_N})?( {_N})?$"
_AGGREGATED = re.compile(r"\d{9,10} \d+ \d+ \d+ \d+ \d+( |$)")
# A bucket is as wide as that of our histograms: three digits.
_BUCKET = "greatest(1, 10 ** (length(us::varchar) - 3))::bigint"


def import_pgbench(files: Sequence[Path], output: Path, *, seventh: str | None, overwrite: bool) -> dict[str, Any]:
    """Logs of `pgbench -l`, all of one run: a file for each thread. seventh: what the seventh column is where there is no eighth.

    Raises LeadlineError: a file that cannot be read, is aggregated, or has no transaction; a seventh column that may be either.
    """
    for file in files:
        _look_at(file)
    db = memory_database()
    try:
        _read(db, files)
        most, lines, bad = db.execute(
            f"""select max(columns) filter (good), count(*), count(*) filter (not good)
                from (select columns, regexp_full_match(line, '{_SIXTH}') as good from log)"""
        ).fetchall()[0]
        if not lines or lines == bad:
            raise _no_log(files[0])
        if most == 7 and seventh is None:
            hint = "--seventh lag if pgbench ran with -R, --seventh retries if it was to try again (max-tries)"
            raise LeadlineError("usage", "the seventh column of the log is either the schedule lag or the retries", hint=hint)
        _transactions(db, "lag" if most == 8 else seventh)
        with new_capture(output, overwrite=overwrite) as directory:
            making = Making(directory, Target("load", "import of pgbench"), {"files": [str(file) for file in files], "seventh": seventh})
            with making.from_files() as manifest:
                begun, ended = db.execute("select min(ts - coalesce(latency_us, 0) * 1000), max(ts) from load_transaction").fetchall()[0]
                manifest.clock = Clock(begun, ended, 0)
                manifest.probes["load"] = ProbeState(tier="files", loss={"lines": bad}, detail={"tool": "pgbench", "mode": "imported"})
                manifest.notes.append("imported from pgbench: rows, bytes, CPU of the client and errors of a statement are not known")
                if bad:
                    manifest.notes.append(f"{bad:,} of {lines:,} lines of the logs are no transactions")
                for name, query in _tables(begun, ended).items():
                    manifest.tables[name] = write_table(db, directory, name, query)
        counted = dict(db.execute("select outcome, count(*) from load_transaction group by 1").fetchall())
        return {"capture": str(directory), "transactions": lines - bad, "outcomes": counted, "lines_not_read": bad,
                "seconds": (ended - begun) / 1e9}  # fmt: skip
    finally:
        db.close()


def _look_at(file: Path) -> None:
    if file.exists() and not file.is_file():
        raise LeadlineError("invalid", "a log is a file, and this is none", where=str(file))
    if set(str(file)) & set("*?["):  # DuckDB takes these for patterns
        raise LeadlineError("invalid", "the name of a log has one of the signs * ? [", hint="rename it", where=str(file))
    try:
        with open(file, "rb") as opened:
            head = opened.read(4096).decode("utf-8", "replace").partition("\n")[0]
    except OSError as e:
        raise LeadlineError("not_found", "the log cannot be read", detail=e.strerror or str(e), where=str(file)) from e
    if _AGGREGATED.match(head) and not re.match(_SIXTH, head):
        hint = "run pgbench with -l, and without an interval over which it aggregates"
        raise LeadlineError("invalid", "the log has sums of intervals, not transactions", hint=hint, where=str(file))


def _read(db: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Lines as they are, in table log; how many columns each has."""
    names = ", ".join("'" + str(file).replace("'", "''") + "'" for file in files)
    try:
        db.execute(
            f"""create table log as select line, len(string_split(line, ' ')) as columns, parse_filename(filename) as file
                from read_csv([{names}], header = false, columns = {{'line': 'varchar'}}, delim = '\x01', quote = '', escape = '',
                              filename = true, max_line_size = 65536, encoding = 'latin-1')
                where line is not null"""
        )
    except duckdb.Error as e:
        raise LeadlineError("invalid", "a log cannot be read", detail=str(e).splitlines()[0], where=str(files[0])) from e


def _transactions(db: duckdb.DuckDBPyConnection, seventh: str | None) -> None:
    lag = "c[7]" if seventh == "lag" else "null"
    retries = "coalesce(c[8], c[7])" if seventh == "retries" else "c[8]"
    db.execute(
        f"""create table load_transaction as
            select (c[5]::bigint * 1000000 + c[6]::bigint) * 1000 as ts, c[1]::int as client, c[2]::bigint as number, c[4]::int as script,
                   case when try_cast(c[3] as bigint) is null then c[3] else 'done' end as outcome, try_cast(c[3] as bigint) as latency_us,
                   {lag}::bigint as lag_us, {retries}::bigint as retries, file
            from (select string_split(line, ' ') as c, file from log where regexp_full_match(line, '{_SIXTH}')) order by ts"""
    )
    db.execute("drop table log")


def _tables(begun: int, ended: int) -> dict[str, str]:
    """Queries by table; columns that they do not name are not known. Also seconds in which nothing ended have a row."""
    second, quantiles = f"greatest(ts - {begun} - 1, 0) // 1000000000", {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99_9": 0.999, "max": 1.0}
    end_of = f"least({begun} + (second + 1) * 1000000000, {ended})"
    kinds = {"latency": "latency_us", "service": "latency_us - lag_us", "lag": "case when latency_us is not null then lag_us end"}

    def at(kind: str, names: Sequence[str]) -> str:
        return ", ".join(f"quantile_disc({kinds[kind]}, {quantiles[name]}) * 1000 as {kind}_{name}_ns" for name in names)

    parts = (f"select '{kind}' as kind, {second} as second, {us} as us from load_transaction" for kind, us in kinds.items())
    each = " union all ".join(parts)
    return {
        "load_transaction": "from load_transaction",
        "load_second": f"""
            select {end_of} as ts, {end_of} - {begun} - second * 1000000000 as duration_ns, 0 as phase, false as warm_up,
                   false as after_the_end, count(t.ts) as due, count(t.ts) filter (outcome <> 'skipped') as begun,
                   count(*) filter (outcome = 'done') as done,
                   done as ended, count(*) filter (outcome not in ('done', 'skipped')) as failed,
                   count(*) filter (outcome = 'skipped') as skipped, coalesce(sum(retries), 0)::bigint as retries,
                   {at("latency", list(quantiles))}, {at("service", ("p50", "p99", "max"))}, {at("lag", ("p99", "max"))}
            from range((select max({second}) + 1 from load_transaction)) seconds(second)
            left join (select *, {second} as second from load_transaction) t using (second) group by second order by second""",
        "load_bucket": f"""
            select {end_of} as ts, 0 as phase, kind, us // width * width * 1000 as low_ns, (us // width + 1) * width * 1000 - 1 as high_ns,
                   count(*) as count
            from (select *, {_BUCKET} as width from ({each}) where us is not null) group by all order by ts, kind, low_ns""",
        "load_error": f"""
            select {ended} as ts, 0 as phase, count(*) as count, 0 as retried, outcome as message,
                   case outcome when 'serialization' then '40001' when 'deadlock' then '40P01' else 'script' end as sqlstate
            from load_transaction where outcome not in ('done', 'skipped') group by outcome""",
    }  # fmt: skip


def write_table(db: duckdb.DuckDBPyConnection, directory: Path, name: str, query: str) -> Written:
    """The rows of the query with all columns of the contract, as the one segment of a table."""
    columns = ", ".join(f"null::{duckdb_type(column.type)} as {column.name}" for column in all_tables()[name].columns)
    typed = ", ".join(f"{column.name}::{duckdb_type(column.type)} as {column.name}" for column in all_tables()[name].columns)
    db.execute(f"create or replace temp table written as select {typed} from (select {columns} where false union all by name ({query}))")
    rows = db.execute("select count(*) from written").fetchall()[0][0]
    if not rows:
        return {"rows": 0, "bytes": 0, "segments": 0}
    (directory / name).mkdir(exist_ok=True)
    segment = directory / name / "000001.parquet"
    db.execute(f"copy written to '{str(segment).replace(chr(39), chr(39) * 2)}' (format parquet, compression zstd)")
    return {"rows": int(rows), "bytes": segment.stat().st_size, "segments": 1}


def _no_log(file: Path) -> LeadlineError:
    hint = "it is written by pgbench -l: client, transaction, microseconds, script, second, microsecond"
    return LeadlineError("invalid", "this is no log of transactions", hint=hint, where=str(file))
