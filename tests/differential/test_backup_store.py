"""Backups in an object store that speaks S3, beside the same files on a disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle
from leadline.cli import run
from object_store import BUCKET, ObjectStore, object_store
from pgbackrest_repos import PASSPHRASE, repository
from tar_backups import Source, source

pytestmark = pytest.mark.live
SAME = ("bytes", "pages", "items", "checksums", "digests", "kinds", "classes")


@pytest.fixture(scope="module")
def primary() -> Iterator[Source]:
    with source() as made:
        yield made


@pytest.fixture(scope="module")
def stored() -> Iterator[ObjectStore]:
    with object_store() as made:
        yield made


def asked(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert run([*map(str, words), "--json"]) == code, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def rows(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[str, str]:
    capsys.readouterr()
    assert run(["rows", *map(str, words), "--database", "postgres"]) == 0, capsys.readouterr()
    return capsys.readouterr()


def same(capsys: pytest.CaptureFixture[str], there: str, here: Path) -> None:
    """What is read of a backup in the store is what is read of it on the disk."""
    found, wanted = asked(capsys, "page", "check", there), asked(capsys, "page", "check", here)
    assert found["problems"] == [] and found["summary"]["checksums"] > 900
    assert {key: found["summary"].get(key) for key in SAME} == {key: wanted["summary"].get(key) for key in SAME}
    for table in ("t", "s"):
        (out, err), (wanted_out, _) = rows(capsys, there, table), rows(capsys, here, table)
        assert out == wanted_out and out.count("\n") > 2000
        assert f"warning: {there}" not in err


@pytest.mark.parametrize("options", [["--compress-type=zst", "--repo1-bundle"], ["encrypted"]], ids=" ".join)
def test_a_repository_of_pgbackrest(
    primary: Source, stored: ObjectStore, options: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The incremental backup is read with what the full one has of it."""
    passphrase = PASSPHRASE if options == ["encrypted"] else ""
    options = ["--compress-type=lz4", "--repo1-bundle"] if passphrase else options
    monkeypatch.setenv("PGBACKREST_REPO1_CIPHER_PASS", passphrase)
    with repository(primary, "of-store", *options, kinds=("full", "incr"), passphrase=passphrase, archived=2) as repo:
        there = stored.put(repo.path, f"repo{len(options)}{passphrase != ''}")
        same(capsys, f"{there}/backup/demo/{repo.labels['incr']}", repo.backup("incr"))
        outcomes = asked(capsys, "page", "check", "--all-backups", there)
        assert [(one["backup"], one["result"]) for one in outcomes] == [
            (f"{there}/backup/demo/{repo.labels[kind]}", "sound") for kind in ("full", "incr")
        ]
        wal = there + str(repo.archive).removeprefix(str(repo.path))
        shown = asked(capsys, "wal", "show", wal)
        assert shown == asked(capsys, "wal", "show", repo.archive) and len(shown) > 20
        if not passphrase:
            segment = min(repo.archive.glob("*/*-*"))
            one = f"{wal}/{segment.parent.name}/{segment.name}"
            assert asked(capsys, "wal", "show", one) == asked(capsys, "wal", "show", segment)


@pytest.mark.parametrize("options", [["-S", "5MB"], ["-z"]], ids=" ".join)
def test_a_backup_of_barman_cloud(
    primary: Source, stored: ObjectStore, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it stored by itself, in one archive or in several, beside what it restores."""
    server, user, prefix = primary.server, primary.server._server_user(), f"cloud{options[0]}"
    environment = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("AWS_")}

    def do(program: str, *words: str) -> None:
        if shutil.which(program) is None:
            no_oracle(f"no {program}")
        line = [program, "--endpoint-url", stored.url, *words]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=120, **user.popen_arguments())
        assert done.returncode == 0, done.stdout + done.stderr

    where = ["-h", str(server.socket_dir), "-p", str(server.port), "-U", "postgres", "--immediate-checkpoint"]
    do("barman-cloud-backup", *where, *options, f"s3://{BUCKET}/{prefix}", "main")
    objects = [one["Key"] for one in stored.client.list_objects_v2(Bucket=BUCKET, Prefix=f"{prefix}/")["Contents"]]
    assert any("data_0001.tar" in key for key in objects) == ("-S" in options)
    [info] = [key for key in objects if key.endswith("backup.info")]
    folder = info.removesuffix("/backup.info")
    restored = server.data_dir.parent / f"restored{options[0]}"
    restored.mkdir(mode=0o700)
    user.own(restored)
    space = f"elsewhere:{server.data_dir.parent}/space{options[0]}"
    do("barman-cloud-restore", "--tablespace", space, f"s3://{BUCKET}/{prefix}", "main", folder.rpartition("/")[2], str(restored))
    same(capsys, f"s3://{BUCKET}/{folder}", restored)


def test_archives_of_pg_basebackup(primary: Source, stored: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, options in (("plain", ["-Ft"]), ("packed", ["-Ft", "-z"])):
        backup = primary.take(tmp_path / name, *options)
        same(capsys, stored.put(backup, name), backup)
    out = tmp_path / "out"
    assert run(["salvage", f"s3://{BUCKET}/plain", "-o", str(out), "--json"]) == 0, capsys.readouterr()
    assert (out / "postgres" / "schema.sql").exists()
    scanned = tmp_path / "pages.leadline"
    assert run(["page", "scan", f"s3://{BUCKET}/plain", "-o", str(scanned)]) == 0, capsys.readouterr()
    [row] = asked(capsys, "sql", scanned, "select count(*) as n from page")
    assert row["n"] == asked(capsys, "page", "check", tmp_path / "plain")["summary"]["pages"]


def test_a_data_directory(primary: Source, stored: ObjectStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As hosts copy folders to object stores: what was a link to a tablespace is a folder there. A flipped byte is named by its object."""
    mapped = f"--tablespace-mapping={primary.server.data_dir.parent / 'space'}={tmp_path / 'space'}"
    whole = tmp_path / "whole"
    shutil.copytree(primary.take(tmp_path / "copied", "-Fp", mapped), whole)  # follows links
    for template in ("1", "4"):  # each of its files would be a request
        shutil.rmtree(whole / "base" / template)
    assert (wanted := rows(capsys, whole, "s")[0]).count("\n") > 2000
    content = bytearray((whole / primary.table).read_bytes())
    content[8192 + 5000] ^= 0x10
    (whole / primary.table).write_bytes(content)
    there = stored.put(whole, "whole")
    found = asked(capsys, "page", "check", there, code=1)
    [problem] = found["problems"]
    assert (problem["class"], problem["path"], problem["block"]) == ("checksum", f"{there}/{primary.table}", 1)
    assert found["summary"]["pages"] == asked(capsys, "page", "check", whole, code=1)["summary"]["pages"] > 300
    assert rows(capsys, there, "s")[0] == wanted
