"""`rows` and `salvage` of backups in place. Oracle: what the server's COPY wrote when the backup was taken, as nobody wrote to it."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import fetched_or_skip
from leadline._core.backups import BackupFiles
from leadline.cli import run
from leadline.files import backup_rows, extracted
from pgbackrest_repos import PASSPHRASE, Repo, pgbackrest_version, repository
from quiet_tables import OTHER, TABLES, Quiet, quiet, without_places
from tar_backups import tool_dir

PACKED = {"tar": [], "tar.gz": ["gzip", "-1"], "tar.lz4": ["lz4", "-q", "-1"], "tar.zst": ["zstd", "-q", "-1"]}


@pytest.fixture(scope="module", params=[13, 18])
def major(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture(scope="module")
def made(major: int) -> Iterator[Quiet]:
    with quiet(fetched_or_skip(major).bin_dir) as found:
        yield found


@pytest.fixture(scope="module")
def tars(made: Quiet, major: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made.source.take(tmp_path_factory.mktemp("tars") / "backup", "-Ft", tools=tool_dir(major))


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where files are put; nothing is left there."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    assert list(folder.iterdir()) == []


def rows(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> tuple[str, str]:
    """What is printed, and what is said beside it."""
    capsys.readouterr()
    assert run(["rows", *map(str, words), "--csv"]) == code, capsys.readouterr()
    said = capsys.readouterr()
    return without_places(said.out), said.err


def assert_equal(capsys: pytest.CaptureFixture[str], made: Quiet, backup: Path, *options: object) -> None:
    for table in TABLES:
        out, err = rows(capsys, backup, table, "--database", "postgres", *options)
        assert out == made.rows[table], table
        assert "note: a backup that was not restored (backup_label): changes in its WAL" in err
        assert "hint: restore it, and let a server replay its WAL; or read the files as they are" in err
        assert "warning" not in err
    assert rows(capsys, backup, "t", "--database", OTHER, *options)[0] == made.rows[OTHER]


@pytest.mark.live
@pytest.mark.parametrize("form", PACKED)
def test_rows_of_tar_archives_are_those_of_the_server(
    made: Quiet, tars: Path, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup = tars
    if packing := PACKED[form]:
        backup = tmp_path / "packed"
        backup.mkdir()
        for archive in tars.glob("*.tar"):
            with (backup / f"{archive.stem}.{form}").open("wb") as out:
                subprocess.run([*packing, "-c", archive], stdout=out, check=True, timeout=60)
    assert_equal(capsys, made, backup)


@pytest.mark.live
def test_a_data_directory_in_a_folder_of_an_archive(made: Quiet, tars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As other programs make it; the tablespaces are in it, too."""
    cluster = tmp_path / "main"
    for archive in tars.glob("*.tar"):
        folder = {"base.tar": cluster, "pg_wal.tar": cluster / "pg_wal"}.get(archive.name, cluster / "pg_tblspc" / archive.stem)
        if archive.stem.isdigit() and folder.is_symlink():
            folder.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xf", archive, "-C", folder], check=True, timeout=60)
    for link in (cluster / "pg_tblspc").iterdir():
        assert link.is_dir() and not link.is_symlink()
    subprocess.run(["tar", "-czf", tmp_path / "cluster.tgz", "-C", tmp_path, "main"], check=True, timeout=60)
    assert_equal(capsys, made, tmp_path / "cluster.tgz")


@pytest.mark.live
@pytest.mark.parametrize("form", ["files", "archives"])
def test_rows_of_barman(made: Quiet, tars: Path, form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup = tmp_path / "main" / "base" / "20261128T221901"
    backup.mkdir(parents=True)
    (backup / "backup.info").write_text("backup_label=None\nend_xlog=0/9000000\nstatus=DONE\n")
    if form == "archives":
        shutil.copytree(tars, backup / "data")
    else:
        for archive in tars.glob("*.tar"):
            folder = {"base.tar": backup / "data", "pg_wal.tar": backup / "data/pg_wal"}.get(archive.name, backup / archive.stem)
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["tar", "-xf", archive, "-C", folder], check=True, timeout=60)
    assert_equal(capsys, made, backup)
    _, err = rows(capsys, backup, "t", "--database", "postgres")
    assert ("barman backup: 0B of its files" in err) == (form == "files")  # links lead to them


# Files stored by blocks only come of 2.46 and later, which also know 18.
NEWEST = 18 if pgbackrest_version() >= (2, 55) else 13
BY_BLOCKS = ["lz4-block", "zst-block-encrypted"] if pgbackrest_version() >= (2, 46) else []


@pytest.mark.live
@pytest.mark.parametrize("stored", ["gz", "zst-bundle-encrypted", "none-bundle", *BY_BLOCKS])
def test_rows_of_pgbackrest(stored: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a major that this pgBackRest knows."""
    packing, _, rest = stored.partition("-")
    options = [f"--compress-type={packing}", *(["--repo1-bundle"] if rest else []), *(["--repo1-block"] if "block" in rest else [])]
    passphrase = PASSPHRASE if "encrypted" in rest else ""
    with quiet(fetched_or_skip(NEWEST).bin_dir) as made:
        repo: Repo
        with repository(made.source, "repo", *options, kinds=("full", "incr"), passphrase=passphrase, writes=False) as repo:
            if passphrase:
                _, err = rows(capsys, repo.backup("incr"), "t", code=2)
                assert "this backup is encrypted, and no key is given" in err
                monkeypatch.setenv("PGBACKREST_REPO1_CIPHER_PASS", PASSPHRASE)
            for kind in ("full", "incr"):
                assert_equal(capsys, made, repo.backup(kind))
            # Tablespaces of the restored cluster are links.
            assert rows(capsys, repo.restored["incr"], "s", "--database", "postgres")[0] == made.rows["s"]


@pytest.mark.live
def test_an_archive_without_its_end_is_named(tars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = gzip.compress((tars / "base.tar").read_bytes(), 1)
    (tmp_path / "base.tar.gz").write_bytes(content[:2000])
    _, err = rows(capsys, tmp_path / "base.tar.gz", "t", "--database", "postgres", code=2)
    assert re.search(r"detail: .*base\.tar\.gz is damaged in the backup, or not whole: .+; [0-9]+ files were found before that", err)


@pytest.mark.live
def test_a_file_that_is_another_than_its_digest_says_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--compress-type=none",)
    with quiet(fetched_or_skip(13).bin_dir) as made, repository(made.source, "repo", *options, kinds=("full",), writes=False) as repo:
        stored = repo.backup("full") / "pg_data" / made.source.table
        content = bytearray(stored.read_bytes())
        content[8192 + 8000] ^= 1
        stored.write_bytes(content)
        out, err = rows(capsys, repo.backup("full"), "t", "--database", "postgres", code=1)
        assert f"warning: {made.source.table} is damaged in the backup, or not whole: its SHA-1 is " in err
        assert "warning: 1 page with a wrong checksum" in err
        assert out.count("\n") == made.rows["t"].count("\n")
        assert rows(capsys, repo.backup("full"), "s", "--database", "postgres")[0] == made.rows["s"]


@pytest.mark.live
def test_the_room_that_is_needed_is_asked_for_first(
    tars: Path, capsys: pytest.CaptureFixture[str], scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(scratch)
    monkeypatch.setattr(extracted.shutil, "disk_usage", lambda _path: usage._replace(free=1000))
    _, err = rows(capsys, tars, "t", "--database", "postgres", code=2)
    assert "error: not enough space for the files that are needed of the tar archive" in err
    assert re.search(rf"detail: [0-9.]+MB are needed in {scratch}, 1000B are free", err)
    assert f"at: {tars}\n" in err and "hint: set TMPDIR" in err


@pytest.mark.live
def test_only_what_is_needed_is_written(made: Quiet, tars: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither indexes of tables, nor other tables, nor the WAL."""
    backup = BackupFiles.open(str(tars), [])
    assert backup is not None
    everything = sum(backup.files().values())
    with backup_rows.opened(tars, (), None) as source:
        source.need_table("s", "postgres")
        there = {path.relative_to(source.data_dir) for path in source.data_dir.rglob("*") if path.is_file()}
        assert Path(made.source.spaced) in there and Path(made.source.table) not in there
        assert not any("pg_wal" in path.parts for path in there)
        assert source.extracted < 0.7 * everything  # most of it are the catalogs of five databases
    assert made.rows["s"].count("\n") == 2001


@pytest.mark.live
def test_nothing_is_left_after_sigterm(tars: Path, scratch: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from leadline.files import backup_rows\n"
        "with backup_rows.opened(Path(sys.argv[1]), (), None) as source:\n"
        "    print(source.data_dir, flush=True); time.sleep(60)\n"
    )
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen([sys.executable, "-c", program, str(tars)], env=environment, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        directory = Path(child.stdout.readline().strip())
        assert directory.parent == scratch and (directory / "global/pg_control").is_file()
        child.send_signal(signal.SIGTERM)
        child.wait(30)
    assert not directory.exists()


@pytest.mark.live
def test_salvage_of_a_backup_is_that_of_its_files(made: Quiet, tars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unpacked = tmp_path / "unpacked"
    for archive in tars.glob("*.tar"):
        folder = {"base.tar": unpacked, "pg_wal.tar": unpacked / "pg_wal"}.get(archive.name, unpacked / "pg_tblspc" / archive.stem)
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xf", archive, "-C", folder], check=True, timeout=60)
    outcome = {}
    for source in (tars, unpacked):
        saved = tmp_path / f"saved-{source.name}"
        capsys.readouterr()
        code = run(["salvage", str(source), "-o", str(saved), "--json"])
        said = json.loads(capsys.readouterr().out)
        assert "leadline-backup-" not in json.dumps(said) and said["unread_files"] == []
        files = {path.relative_to(saved): path.read_bytes() for path in saved.rglob("*") if path.is_file()}
        manifest = json.loads(files.pop(Path("manifest.json")))
        assert manifest["data_dir"] == str(source)
        outcome[source] = (code, files, manifest["databases"])
    assert outcome[tars] == outcome[unpacked]
    assert sum(each["rows"] for each in outcome[tars][2]) > 7000
