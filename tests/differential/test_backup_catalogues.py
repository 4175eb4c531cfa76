"""`page check --all-backups`, and backups of barman and WAL-G.

barman's are made of files that a real pg_basebackup took, laid out as barman 3.4 does (test_backup_barman.py has those of a real barman);
WAL-G's are made as its source says (walg_samples.py); test_backup_walg_real.py has those of WAL-G itself.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline.cli import run
from pgbackrest_repos import Repo, repository
from tar_backups import Source, source
from walg_samples import BLOCK, increment, partition, walg_backup

SAME = ("files", "bytes", "pages", "items", "checksums", "kinds", "classes")


@pytest.fixture(scope="module")
def primary() -> Iterator[Source]:
    with source() as made:
        yield made


@pytest.fixture(scope="module")
def repo(primary: Source) -> Iterator[Repo]:
    with repository(primary, "all", "--compress-type=none", "--repo1-bundle") as made:
        yield made


@pytest.fixture(scope="module")
def tars(primary: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return primary.take(tmp_path_factory.mktemp("tars") / "backup", "-Ft")


def asked(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["page", "check", *map(str, words), "--json"]) == code, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


# barman

INFO = """backup_label=None
begin_xlog=0/2000028
end_xlog=0/9000000
mode=postgres
status={status}
timeline=1
"""


def catalogue(home: Path, status: str = "DONE") -> Path:
    """A backup of a server `main`, without its files."""
    backup = home / "main" / "base" / "20261128T221901"
    backup.mkdir(parents=True)
    (backup / "backup.info").write_text(INFO.format(status=status))
    return backup


@pytest.mark.live
def test_archives_of_barman(tars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup = catalogue(tmp_path)
    shutil.copytree(tars, backup / "data")
    found, wanted = asked(capsys, backup), asked(capsys, tars)
    assert {key: found["summary"][key] for key in SAME} == {key: wanted["summary"][key] for key in SAME}
    assert found["summary"]["backups"] == [[str(backup), "barman backup"]]


@pytest.mark.live
def test_copied_files_of_barman(primary: Source, tars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tablespaces are beside `data`; the links to them lead to where they were on the server."""
    backup = catalogue(tmp_path, "WAITING_FOR_WALS")
    for archive in tars.glob("*.tar"):
        folder = {"base.tar": backup / "data", "pg_wal.tar": backup / "data" / "pg_wal"}.get(archive.name, backup / archive.stem)
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(["tar", "-xf", archive, "-C", folder], check=True, timeout=60)
    found, wanted = asked(capsys, backup), asked(capsys, tars)
    assert {key: found["summary"][key] for key in SAME} == {key: wanted["summary"][key] for key in SAME}
    flip(backup / primary.spaced.removeprefix("pg_tblspc/"), BLOCK + 5000)
    [problem] = asked(capsys, backup, code=1)["problems"]
    assert (problem["class"], problem["path"], problem["block"]) == ("checksum", f"{backup}/{primary.spaced}", 1)


def test_backups_of_barman_that_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for status in ("STARTED", "FAILED", "EMPTY"):
        backup = catalogue(tmp_path / status, status)
        error = asked(capsys, backup, code=2)["error"]
        assert (error["message"], error["detail"]) == ("this backup is not complete", f"barman says of it: {status}")
    backup = catalogue(tmp_path)
    (backup / "data").mkdir()
    (backup / "data" / "base.tar.gz.gpg").write_bytes(b"\x85")
    assert asked(capsys, backup, code=2)["error"]["kind"] == "unsupported"


# WAL-G


@pytest.mark.live
def test_backups_of_walg(primary: Source, tars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with tarfile.open(tars / "base.tar") as tar:
        files = {f"/{about.name}": tar.extractfile(about).read() for about in tar.getmembers() if about.isfile()}  # type: ignore[union-attr]
    control = {"/global/pg_control": files.pop("/global/pg_control")}
    names = sorted(files)
    half = [{name: files[name] for name in part} for part in (names[::2], names[1::2])]
    full = walg_backup(tmp_path, "base_000000010000000000000002", [*half, control], {"LSN": 33554472, "FinishLSN": 50331648}, {"Files": {}})
    found, wanted = asked(capsys, full), asked(capsys, tars / "base.tar")
    assert {key: found["summary"][key] for key in SAME} == {key: wanted["summary"][key] for key in SAME}
    assert found["summary"]["backups"] == [[str(full), "WAL-G backup"]]

    name, content = f"/{primary.table}", bytearray(files[f"/{primary.table}"])
    content[7 * BLOCK + 5000] ^= 1
    delta = walg_backup(
        tmp_path,
        "base_000000010000000000000004_D_000000010000000000000002",
        [{name: increment(bytes(content), [2, 7, 9])}, control],
        {"LSN": 67108904, "DeltaLSN": 33554472, "DeltaFrom": full.name},
        {"Files": {name: {"IsIncremented": True, "IsSkipped": False}}},
    )
    found = asked(capsys, delta, code=1)
    [problem] = found["problems"]
    path = Path(primary.table)
    assert (problem["class"], problem["path"], problem["block"]) == ("checksum", f"{delta}/{path.parent}/INCREMENTAL.{path.name}", 7)
    assert (found["summary"]["incremental"], found["summary"]["kinds"]) == (1, {"heap": 3})


def test_backups_of_walg_that_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    backup = walg_backup(tmp_path, "base_1", [{"/base/5/16384": bytes(BLOCK)}], {}, {})
    (backup / "tar_partitions" / "part_2.tar.br").write_bytes(bytes(range(100)))
    [problem] = asked(capsys, backup, code=1)["problems"]
    assert (problem["class"], Path(problem["path"]).name, "brotli" in problem["message"]) == ("unreadable", "part_2.tar.br", True)
    partition(backup / "tar_partitions" / "part_2.tar.br", {"/base/5/16385": bytes(BLOCK)})
    (backup / "tar_partitions" / "part_2.tar.br").unlink()
    (backup / "files_metadata.json").write_text('{"Files": {"/base/5/16384": {"IsIncremented": true}}}')
    [problem] = asked(capsys, backup, code=1)["problems"]
    assert (problem["class"], Path(problem["path"]).name) == ("unreadable", "INCREMENTAL.16384")
    (tmp_path / "basebackups_005" / "base_1_backup_stop_sentinel.json").unlink()
    assert asked(capsys, backup, code=2)["error"]["message"] == "this backup is not complete"


# All of them.


@pytest.mark.live
def test_all_backups_of_a_repository(repo: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(repo.path, tmp_path / "repo", symlinks=True)
    stanza, state = tmp_path / "repo/backup/demo", tmp_path / "state"
    names = [str(stanza / label) for label in repo.labels.values()]
    for place in (tmp_path / "repo", stanza):
        outcomes = asked(capsys, "--all-backups", place)
        assert [(of["backup"], of["result"]) for of in outcomes] == [(name, "sound") for name in names]
    assert run(["page", "check", "--all-backups", str(stanza), "--state", str(state)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(": ")[0] for line in lines] == names
    assert all(line.partition(": ")[2].startswith("no problems in ") for line in lines)

    # Nothing is checked again: what is damaged now is not seen, until its list is another one.
    for bundle in (stanza / repo.labels["full"] / "bundle").iterdir():
        bundle.write_bytes(bytes(bundle.stat().st_size))
    assert run(["page", "check", "--all-backups", str(stanza), "--state", str(state)]) == 0
    assert all(line.endswith("(checked before)") for line in capsys.readouterr().out.splitlines())
    manifest = stanza / repo.labels["diff"] / "backup.manifest"
    manifest.write_text(manifest.read_text() + "\n")
    outcomes = asked(capsys, "--all-backups", stanza, "--state", state, code=1)
    assert [of["result"] for of in outcomes] == ["sound", "problems", "sound"]
    assert outcomes[1]["classes"]["digest"] > 100

    # A backup that is being made, and a run that was ended while it wrote its last line.
    manifest.rename(manifest.with_suffix(".manifest.copy"))
    content = state.read_bytes()
    state.write_bytes(content[:-20])
    outcomes = asked(capsys, "--all-backups", stanza, "--state", state, code=2)
    assert [of["result"] for of in outcomes] == ["sound", "not checked", "sound"]
    assert outcomes[1]["message"].startswith("this backup is not complete: ")
    assert [json.loads(text)["result"] for text in state.read_text().splitlines()] == ["sound"] * 3 + ["not checked"]


@pytest.mark.live
def test_all_backups_of_other_tools(tars: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(tars, catalogue(tmp_path / "barman") / "data")
    shutil.copytree(tars, tmp_path / "folders" / "monday")
    shutil.copytree(tars, tmp_path / "folders" / "sunday")
    walg = walg_backup(tmp_path / "walg", "base_1", [{"/base/5/16384": bytes(BLOCK)}], {}, {})
    for place, wanted in (
        (tmp_path / "barman", ["barman/main/base/20261128T221901"]),
        (tmp_path / "barman" / "main", ["barman/main/base/20261128T221901"]),
        (tmp_path / "folders", ["folders/monday", "folders/sunday"]),
        (tmp_path / "walg", [str(walg.relative_to(tmp_path))]),
    ):
        outcomes = asked(capsys, "--all-backups", place)
        assert [(of["backup"], of["result"]) for of in outcomes] == [(str(tmp_path / name), "sound") for name in wanted]


def test_what_is_no_repository_or_no_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert asked(capsys, "--all-backups", tmp_path, code=2)["error"]["message"] == "no backups here"
    assert asked(capsys, tmp_path, "--state", tmp_path / "x", code=2)["error"]["message"] == "--state requires --all-backups"
    walg_backup(tmp_path, "base_1", [{"/base/5/16384": bytes(BLOCK)}], {}, {})
    (tmp_path / "state").write_text("no outcome\n{}\n")
    error = asked(capsys, "--all-backups", tmp_path, "--state", tmp_path / "state", code=2)["error"]
    assert error["message"] == "line 1 of the state file is no outcome"
    (tmp_path / "state").write_text("notes of somebody, on a line without an end")
    error = asked(capsys, "--all-backups", tmp_path, "--state", tmp_path / "state", code=2)["error"]
    assert error["message"] == "line 1 of the state file is no outcome"
    assert (tmp_path / "state").read_text() == "notes of somebody, on a line without an end"
