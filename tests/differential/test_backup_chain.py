"""Rows of incremental backups (17 and later). Oracle: what pg_combinebackup makes of the same backups, and the server's COPY."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from conftest import fetched_or_skip
from leadline._core.backups import BackupFiles
from leadline.cli import run
from odd_files import ODD
from quiet_tables import copied, without_places
from recovery import ChecksummedServer
from tar_backups import SETTINGS, tool_dir

BLOCK = 8192
MAKE = (
    "create table t as select i as n, repeat('x', 50) as v from generate_series(1, 20000) i",
    "create table cut as select i as n from generate_series(1, 20000) i",
    "create table gone as select 1 as n",
    "create table grown (n int) tablespace space",
    "vacuum freeze t, cut",
)
CHANGES = (
    ("update t set n = -n where n in (77, 9000, 19000)", "delete from cut where n > 5000 or n = 1", "vacuum cut", "drop table gone"),
    ("update t set n = -n where n = 9500", "insert into grown select i from generate_series(1, 3000) i", "vacuum full pg_class",
     "insert into cut select -i from generate_series(1, 9000) i", "create table new as select 42 as n"),
)  # fmt: skip
TABLES = ("t", "cut", "grown", "new")


@dataclass(frozen=True)
class Chain:
    """The full backup and two incremental ones, and the same as archives. combined: by pg_combinebackup of 18; rows: after the last one.

    table: the file of `t`, in each."""

    plain: list[Path]
    packed: list[Path]
    combined: Path
    rows: dict[str, str]
    table: str


@pytest.fixture(scope="module", params=[17, 18])
def chain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    major, folder = request.param, tmp_path_factory.mktemp("chain")
    tools, names = tool_dir(18), ("full", "first", "second")

    def do(*command: object) -> None:
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr

    with ChecksummedServer(fetched_or_skip(major).bin_dir, settings={**SETTINGS, "summarize_wal": True}) as server:
        space = server.data_dir.parent / "space"
        space.mkdir()
        server._server_user().own(space)
        take = [tools / "pg_basebackup", "-d", server.dsn, "-c", "fast"]
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"create tablespace space location '{space}'")
            before = None
            for name, statements in zip(names, (MAKE, *CHANGES)):
                for statement in statements:
                    connection.execute(statement)
                since = [f"--incremental={folder}/{before}/backup_manifest"] if before else []
                packed = [f"--incremental={folder}/{before}-tar/backup_manifest"] if before else []
                do(*take, "-D", folder / name, f"--tablespace-mapping={space}={folder}/space-{name}", *since)
                do(*take, "-D", folder / f"{name}-tar", "-Ft", "-z", *packed)
                before = name
            rows = {name: copied(connection, name) for name in TABLES}
            [table] = connection.execute("select pg_relation_filepath('t')").fetchone() or ("",)
    plain = [folder / name for name in names]
    combined = folder / "combined"
    mapping = f"--tablespace-mapping={folder}/space-second={folder}/space-combined"
    if major == 18:  # of which the one here is
        do(tools / "pg_combinebackup", *plain, "-o", combined, mapping)
    yield Chain(plain, [folder / f"{name}-tar" for name in names], combined, rows, table)


def words_of(backups: list[Path]) -> list[str]:
    return [str(backups[-1]), *(word for base in backups[:-1] for word in ("--based-on", str(base)))]


def rows(capsys: pytest.CaptureFixture[str], table: str, *words: str, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run(["rows", words[0], table, *words[1:], "--csv"]) == code, capsys.readouterr()
    said = capsys.readouterr()
    return without_places(said.out), said.err


@pytest.mark.live
@pytest.mark.parametrize("chain", [18], indirect=True)
def test_the_files_are_those_of_pg_combinebackup(chain: Chain, tmp_path: Path) -> None:
    for backups in (chain.plain, chain.packed):
        into = tmp_path / backups[0].name
        files = BackupFiles.open(str(backups[-1]), [str(base) for base in backups[:-1]])
        assert files is not None
        names = {name for name in files.files() if re.match(r"(base|global|pg_tblspc|pg_xact)/", name) and "pg_internal" not in name}
        into.mkdir()
        assert files.extract(str(into), names) == []
        # The archives are of another moment: what changes by itself is not compared.
        own = ("pg_control", "pg_xact") if backups is chain.packed else ("pg_control",)
        compared = [name for name in sorted(names) if not any(word in name for word in own)]
        assert len(compared) > 800
        for name in compared:
            assert (into / name).read_bytes() == (chain.combined / name).read_bytes(), name


@pytest.mark.live
def test_rows_are_those_of_the_server(chain: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    for backups in (chain.plain, chain.packed):
        for table in TABLES:
            out, err = rows(capsys, table, *words_of(backups))
            assert out == chain.rows[table], table
            assert "warning" not in err
        assert "no table named gone" in rows(capsys, "gone", *words_of(backups), code=2)[1]
    assert "\n-9500," in chain.rows["t"] and "\n-77," in chain.rows["t"]


@pytest.mark.live
def test_the_chain_of_barman_is_in_its_own_lists(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parent = None
    for backup in chain.packed:
        folder = tmp_path / "main" / "base" / f"2026-{backup.name}"
        folder.mkdir(parents=True)
        shutil.copytree(backup, folder / "data")
        said = f"parent_backup_id={parent}\n"
        (folder / "backup.info").write_text(f"backup_label=None\nend_xlog=0/9000000\nstatus=DONE\n{said}")
        parent = folder.name
    assert rows(capsys, "t", str(folder))[0] == chain.rows["t"]


@pytest.mark.live
def test_backups_that_do_not_follow_each_other_are_refused(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full, first, second = map(str, chain.plain)

    def error(*words: str) -> dict[str, str]:
        capsys.readouterr()
        assert run(["rows", words[0], "t", *words[1:], "--json"]) == 2
        found: dict[str, str] = json.loads(capsys.readouterr().out)["error"]
        return found

    lacks = error(second)
    assert (lacks["message"], lacks["where"]) == ("this is an incremental backup", second)
    assert lacks["hint"].endswith("--based-on FULL --based-on INCREMENTAL")
    assert error(second, "--based-on", first)["where"] == first
    skipped = error(second, "--based-on", full)
    assert (skipped["message"], skipped["where"]) == ("the backups cannot be combined", full)
    place = r"0/\w+ on timeline 1"
    assert re.fullmatch(rf"it begins at {place}, but {second} is based on the one that begins at {place}", skipped["detail"])
    twice = error(second, "--based-on", full, "--based-on", full, "--based-on", first)
    assert twice["detail"] == "it is older than the full backup that the others are based on"
    assert error(full, "--based-on", full)["message"] == "this is not an incremental backup: it is based on no other"
    for odd, make in ODD.items():
        base = tmp_path / odd
        make(base)
        assert error(second, "--based-on", str(base))["where"] == str(base), odd


@pytest.mark.live
def test_a_file_that_the_full_backup_lost_is_named(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = Path(shutil.copytree(chain.plain[0], tmp_path / "full", symlinks=True))
    (full / chain.table).unlink()
    words = words_of([full, *chain.plain[1:]])
    _, err = rows(capsys, "t", *words, code=1)
    why = "does not have it, or its blocks that did not change"
    assert f"warning: {chain.table} is damaged in the backup, or not whole: {full} {why}\n" in err
    assert rows(capsys, "new", *words)[0] == chain.rows["new"]


@pytest.mark.live
def test_a_tablespace_that_is_gone_is_named(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """pgmoneta restored such a backup and said that all was well (pgmoneta#1321)."""
    second = Path(shutil.copytree(chain.plain[2], tmp_path / "second", symlinks=True))
    [link] = (second / "pg_tblspc").iterdir()
    link.unlink()
    link.symlink_to(tmp_path / "nowhere")
    words = words_of([*chain.plain[:2], second])
    _, err = rows(capsys, "t", *words, code=1)
    said = f"warning: pg_tblspc/{link.name} is damaged in the backup, or not whole: a tablespace is missing: its link leads nowhere"
    assert said in err
    assert "tablespace is missing" in rows(capsys, "grown", *words, code=2)[1]


@pytest.mark.live
def test_an_increment_that_is_cut_off_is_named(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    second = Path(shutil.copytree(chain.plain[2], tmp_path / "second", symlinks=True))
    increment = second / Path(chain.table).with_name(f"INCREMENTAL.{Path(chain.table).name}")
    with increment.open("r+b") as file:
        file.truncate(increment.stat().st_size - BLOCK)
    _, err = rows(capsys, "t", *words_of([*chain.plain[:2], second]), code=1)
    said = rf"warning: {chain.table} is damaged in the backup, or not whole: it is cut off: 1 of its [0-9]+ blocks are missing\n"
    assert re.search(said, err)
