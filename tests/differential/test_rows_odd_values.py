"""Values whose text depends on what is around them: elements of arrays of any type, and a byte that is no character."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import running
from leadline._core.rows import RowScan
from leadline.cli import run
from servers import MAJORS
from test_rows import told
from test_rows_encodings import RUNNING


@pytest.mark.parametrize("major", MAJORS)
def test_statistics_and_bytes_are_as_the_server_prints_them(major: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with running(major, autovacuum=False) as server, server.connect(dbname="postgres") as connection:
        for statement in (
            "create extension citext",
            "create type inner_pair as (word text, n int)",
            "create type pair as (a int, b text, gone int, c inner_pair[])",
            "alter type pair drop attribute gone",
            "create table most_common as select row(i % 3, 'x \"' || i % 3, array[row('w', i % 3)::inner_pair])::pair as p,"
            " ('Word ' || i % 2)::citext as c, ('{a,b}'::citext[]) as d, array[row(i % 2, null, null)::pair] as ps,"
            " makeaclitem(10, 10, 'SELECT', false) as acl from generate_series(1, 200) i",
            "analyze most_common",
            'create table bytes as select i::"char" as c, array[i::"char", \'x\'] as cs from generate_series(-128, 127) i',
            "checkpoint",
        ):
            connection.execute(statement)
        data_dir = str(server.private.data_dir)

        # Only of this table: names of functions, which are in the statistics of catalogs, are told as numbers.
        [[relid]] = told(connection, "select 'most_common'::regclass::oid")
        statistics = f"select stavalues1 from pg_statistic where stavalues1 is not null and starelid = {relid}"
        scan = RowScan(data_dir, relation="pg_statistic", database="postgres")
        at = 1 + [name for name, _ in scan.describe()["columns"]].index("stavalues1")
        found = [row[at] for row in scan.rows(100_000) or [] if row[at] is not None and row[1] == relid]
        assert found == [row[0] for row in told(connection, statistics)]
        assert len(found) == 5 and any("w,2" in (values or "") for values in found)

        # Before 15 the server sends the byte itself, which is no text in UTF-8.
        result = connection.execute("select c, cs from bytes").pgresult
        assert result is not None
        want = [[(result.get_value(i, j) or b"").decode(errors="replace") for j in (0, 1)] for i in range(result.ntuples)]
        lost = sum(text.count("\ufffd") for row in want for text in row)
        assert lost == (256 if major < 15 else 0)
        out = tmp_path / "bytes.parquet"
        for output in ([], ["-o", str(out)], ["-o", str(tmp_path / "bytes.csv")]):
            assert run(["rows", data_dir, "bytes", "--database", "postgres", "--json", *output]) == 0
            printed = capsys.readouterr()
            if not output:
                assert [[row["c"], row["cs"]] for row in json.loads(printed.out)] == want
            warning = f'warning: {lost} values of type "char" are not valid UTF-8: printed as U+FFFD\n' if lost else ""
            assert printed.err == RUNNING + warning
        import duckdb

        assert [list(row) for row in duckdb.connect().execute(f"select c, cs from '{out}'").fetchall()] == want
