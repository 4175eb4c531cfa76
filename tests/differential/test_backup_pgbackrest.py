"""`page check` of backups in repositories that a real pgBackRest made. Oracle: what pgBackRest restores of each."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline.cli import run
from pgbackrest_repos import KINDS, PASSPHRASE, Repo, pgbackrest_version, repository
from tar_backups import Source, source

BLOCK = 8192
SAME = ("files", "bytes", "pages", "items", "checksums", "kinds", "classes")
STORED = {
    "gz": ["--compress-type=gz", "--compress-level=1"],
    "lz4-bundle": ["--compress-type=lz4", "--repo1-bundle"],
    "bz2-bundle": ["--compress-type=bz2", "--compress-level=1", "--repo1-bundle"],
    "zst-bundle-encrypted": ["--compress-type=zst", "--repo1-bundle"],
}


# By blocks: only 2.46 and later can.
if pgbackrest_version() >= (2, 46):
    BLOCKS = ["--repo1-bundle", "--repo1-block"]
    STORED |= {f"{how}-block": [f"--compress-type={how}", *BLOCKS] for how in ("none", "gz", "lz4", "zst")}
    STORED |= {"zst-block-encrypted": ["--compress-type=zst", *BLOCKS]}
    STORED |= {"lz4-block-alone": ["--compress-type=lz4", "--repo1-bundle-limit=8KiB", *BLOCKS]}
WITH_WAL = ("gz", "lz4-bundle", "zst-bundle-encrypted")


@pytest.fixture(scope="module")
def primary() -> Iterator[Source]:
    with source() as made:
        yield made


@pytest.fixture(scope="module", params=STORED)
def repo(request: pytest.FixtureRequest, primary: Source) -> Iterator[Repo]:
    passphrase = PASSPHRASE if "encrypted" in request.param else ""
    kinds = KINDS if request.param == "gz" or "block" in request.param else ("full", "incr")
    archived = 3 if request.param in WITH_WAL else 0
    with repository(primary, request.param, *STORED[request.param], kinds=kinds, passphrase=passphrase, archived=archived) as made:
        yield made


@pytest.fixture(scope="module")
def bundled(primary: Source) -> Iterator[Repo]:
    """All files in one bundle, which is not compressed: how many files are in each of several changes from run to run."""
    stored = ["--compress-type=none", "--repo1-bundle", "--repo1-bundle-size=1GiB"]
    with repository(primary, "bundled", *stored, kinds=("full", "incr")) as made:
        yield made


@pytest.fixture(scope="module")
def encrypted(primary: Source) -> Iterator[Repo]:
    """Files of their own, that are not compressed."""
    with repository(primary, "secret", "--compress-type=none", kinds=("full",), passphrase=PASSPHRASE) as made:
        yield made


def checked(capsys: pytest.CaptureFixture[str], *words: object, code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["page", "check", *map(str, words), "--json"]) == code, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


@pytest.mark.live
def test_pages_of_a_backup_are_those_of_the_restored_cluster(
    repo: Repo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGBACKREST_REPO1_CIPHER_PASS", PASSPHRASE)
    for kind, restored in repo.restored.items():
        found, wanted = checked(capsys, repo.backup(kind)), checked(capsys, restored)
        assert found["problems"] == []
        assert {key: found["summary"][key] for key in SAME} == {key: wanted["summary"][key] for key in SAME}
        assert found["summary"]["checksums"] > 900
        # recovery.signal is of the restore alone, tablespace_map of the backup alone.
        assert found["summary"]["digests"] == len(all_files(restored))


@pytest.mark.live
@pytest.mark.parametrize("repo", WITH_WAL, indirect=True)
def test_the_wal_of_a_repository_is_read_as_the_segments_it_was_given(
    repo: Repo, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGBACKREST_REPO1_CIPHER_PASS", PASSPHRASE)

    def shown(place: Path) -> Any:
        capsys.readouterr()
        assert run(["wal", "show", str(place), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    of_server = shown(repo.segments)
    assert len(of_server) > 30
    assert shown(repo.archive) == of_server
    [below] = repo.archive.iterdir()
    assert shown(below) == of_server
    first = min(repo.segments.iterdir())
    [stored] = below.glob(f"{first.name}-*")
    assert shown(stored) == shown(first)


@pytest.mark.live
@pytest.mark.parametrize("repo", ["zst-bundle-encrypted"], indirect=True)
def test_an_encrypted_archive_needs_its_key(repo: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str) -> Any:
        capsys.readouterr()
        assert run(["wal", "show", str(repo.archive), *words, "--json"]) == 2
        return json.loads(capsys.readouterr().out)["error"]

    found = refused()
    assert (found["kind"], found["message"]) == ("rights", "this archive is encrypted, and no key is given")
    (tmp_path / "key").write_text("another one\n")
    found = refused("--key-file", str(tmp_path / "key"))
    assert (found["kind"], found["message"]) == ("rights", "the key does not open this repository")


@pytest.mark.live
@pytest.mark.parametrize("repo", ["zst-bundle-encrypted"], indirect=True)
def test_an_encrypted_segment_that_is_cut_off_is_named(
    repo: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGBACKREST_REPO1_CIPHER_PASS", PASSPHRASE)
    stanza = Path(shutil.copytree(repo.archive.parent, tmp_path / "demo"))
    segment = min((stanza / repo.archive.name).glob("*/*-*"))
    segment.write_bytes(segment.read_bytes()[:-5])
    assert run(["wal", "show", str(stanza / repo.archive.name), "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["message"], error["where"]) == ("an encrypted file is damaged", str(segment))


def all_files(root: Path) -> list[Path]:
    """Also of tablespaces, to which links lead."""
    spaces = [path.resolve() for path in (root / "pg_tblspc").iterdir()]
    return [path for folder in (root, *spaces) for path in folder.rglob("*") if path.is_file()]


def manifest(repo: Repo, kind: str) -> list[str]:
    """The lines of its files."""
    text = (repo.backup(kind) / "backup.manifest").read_text()
    return text.partition("[target:file]\n")[2].partition("\n\n")[0].splitlines()


def stored(repo: Repo, kind: str, name: str) -> dict[str, Any]:
    """What the manifest says of a file."""
    [line] = [line for line in manifest(repo, kind) if line.startswith(f"{name}=")]
    return dict(json.loads(line.partition("=")[2]))


@pytest.fixture
def copied(bundled: Repo, tmp_path: Path) -> Repo:
    """To be damaged."""
    shutil.copytree(bundled.path, tmp_path / "repo", symlinks=True)
    return Repo(tmp_path / "repo", bundled.labels, bundled.restored, bundled.table, bundled.spaced, bundled.segments)


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


@pytest.mark.live
def test_a_flipped_byte_in_a_bundle_is_named_by_file_and_block(copied: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    """In the full backup; the others are made of it, too."""
    name = "pg_data/base/5/1249"
    about = stored(copied, "full", name)
    flip(copied.backup("full") / "bundle" / str(about["bni"]), about["bno"] + 7 * BLOCK + 5000)
    for kind in ("full", "incr"):
        page, file = checked(capsys, copied.backup(kind), code=1)["problems"]
        where = f"{copied.backup(kind)}/base/5/1249"
        assert (page["class"], page["path"], page["block"]) == ("checksum", where, 7)
        assert (file["class"], file["path"], file["kind"]) == ("digest", where, "file")
        assert about["checksum"] in file["message"]


@pytest.mark.live
def test_a_file_without_pages_that_was_changed(copied: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    about = stored(copied, "full", "pg_data/pg_xact/0000")
    flip(copied.backup("full") / "bundle" / str(about["bni"]), about["bno"] + 100)
    [problem] = checked(capsys, copied.backup("full"), code=1)["problems"]
    assert (problem["class"], problem["path"]) == ("digest", f"{copied.backup('full')}/pg_xact/0000")


@pytest.mark.live
def test_missing_and_cut_objects_of_a_chain(copied: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    about = stored(copied, "full", "pg_data/base/5/1249")
    bundle = copied.backup("full") / "bundle" / str(about["bni"])
    content = bundle.read_bytes()
    bundle.write_bytes(content[: about["bno"] + 7 * BLOCK + 5])
    found = checked(capsys, copied.backup("incr"), code=1)
    [cut] = [problem for problem in found["problems"] if problem["path"].endswith("/base/5/1249")]
    assert (cut["class"], cut["block"]) == ("unreadable", 7)
    bundle.unlink()
    found = checked(capsys, copied.backup("incr"), code=1)
    parts = (f'"bni":{about["bni"]},', f'"reference":"{copied.labels["full"]}"')
    of_bundle = [line for line in manifest(copied, "incr") if all(part in line for part in parts)]
    lost = [problem for problem in found["problems"] if problem["class"] == "unreadable"]
    assert len(lost) == len(of_bundle) > 500
    assert all(str(bundle) in problem["message"] for problem in lost)


@pytest.mark.live
def test_what_is_no_whole_backup_is_said(copied: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in (copied.path, copied.path / "backup" / "demo"):
        error = checked(capsys, folder, code=2)["error"]
        assert (error["kind"], error["hint"]) == ("usage", "name a backup: REPO/backup/STANZA/LABEL")
    manifest_file = copied.backup("incr") / "backup.manifest"
    text = manifest_file.read_text()
    manifest_file.write_text(text.replace("backrest-format=5", "backrest-format=6"))
    assert checked(capsys, copied.backup("incr"), code=2)["error"]["kind"] == "unsupported"
    manifest_file.write_text(text[: len(text) // 2])
    assert checked(capsys, copied.backup("incr"), code=2)["error"]["message"] == "the list of a backup cannot be read"
    manifest_file.unlink()
    assert checked(capsys, copied.backup("incr"), code=2)["error"]["message"] == "this backup is not complete"


@pytest.mark.live
def test_a_name_in_a_manifest_leads_nowhere_else(copied: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "16399").write_bytes(bytes(BLOCK))
    path = copied.backup("full") / "backup.manifest"
    name = "pg_data/../../../../../16399"
    sha1 = hashlib.sha1(bytes(BLOCK)).hexdigest()
    line = f'{name}={{"checksum":"{sha1}","size":8192,"timestamp":1}}'
    path.write_text(path.read_text().replace("[target:file]\n", f"[target:file]\n{line}\n"))
    [problem] = checked(capsys, copied.backup("full"), code=1)["problems"]
    assert (problem["class"], problem["path"]) == ("unreadable", f"{copied.backup('full')}/{name}")


@pytest.mark.live
def test_a_file_that_unpacks_to_more_than_its_manifest_says(copied: Repo, capsys: pytest.CaptureFixture[str]) -> None:
    path = copied.backup("full") / "backup.manifest"
    line = next(line for line in manifest(copied, "full") if line.startswith("pg_data/base/5/1249="))
    about = json.loads(line.partition("=")[2])
    smaller = re.sub(r'"size":\d+', f'"repo-size":{about["size"]},"size":{about["size"] - BLOCK}', line)
    path.write_text(path.read_text().replace(line, smaller))
    [problem] = checked(capsys, copied.backup("full"), code=1)["problems"]
    assert (problem["class"], "more than" in problem["message"]) == ("unreadable", True)


# Keys.


@pytest.mark.live
def test_keys_come_from_a_file_or_the_environment(
    encrypted: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PGBACKREST_REPO1_CIPHER_PASS", raising=False)
    place, key = encrypted.backup("full"), tmp_path / "key"
    assert checked(capsys, place, code=2)["error"]["message"] == "this backup is encrypted, and no key is given"
    key.write_text(f"{PASSPHRASE}\n")
    assert checked(capsys, place, "--key-file", key)["summary"]["digests"] > 900
    for wrong in ("of a tesT", "x", "y" * 5000):
        key.write_text(wrong)
        assert checked(capsys, place, "--key-file", key, code=2)["error"]["message"] == "the key does not open this repository"
    key.write_text("")
    assert checked(capsys, place, "--key-file", key, code=2)["error"]["message"] == "the key file is empty"
    assert checked(capsys, place, "--key-file", tmp_path / "none", code=2)["error"]["message"] == "there is no such file"


@pytest.mark.live
def test_a_flipped_byte_of_an_encrypted_file(
    encrypted: Repo, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block of the cipher and a byte of the next one are others."""
    monkeypatch.setenv("PGBACKREST_REPO1_CIPHER_PASS", PASSPHRASE)
    shutil.copytree(encrypted.path, tmp_path / "repo", symlinks=True)
    place = tmp_path / "repo/backup/demo" / encrypted.labels["full"]
    flip(place / f"pg_data/{encrypted.table}", 16 + 3 * BLOCK + 5000)
    page, file = checked(capsys, place, code=1)["problems"]
    assert (page["class"], page["path"], page["block"]) == ("checksum", f"{place}/{encrypted.table}", 3)
    assert file["class"] == "digest"
