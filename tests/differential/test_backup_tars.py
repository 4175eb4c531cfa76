"""`page check` and `page scan` of tar archives that a real pg_basebackup made. Oracle: the same archives, extracted by tar."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import resource
import shutil
import struct
import subprocess
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline.cli import run
from leadline.files.pages import scan
from leadline.files.pages.tasks import run_task
from leadline.files.tasks import Receipt, Task
from leadline.files.tasks.receipts import RECEIPTS
from tar_backups import Source, source

BLOCK = 8192
SAME = ("files", "bytes", "pages", "items", "checksums", "kinds", "classes")
PACKED = {
    "plain": [],
    "gzip": ["--compress=client-gzip:1"],
    "lz4": ["--compress=server-lz4"],
    "zstd": ["--compress=server-zstd:1"],
}


@pytest.fixture(scope="module")
def primary() -> Iterator[Source]:
    with source() as made:
        yield made


@pytest.fixture(scope="module", params=PACKED)
def backup(request: pytest.FixtureRequest, primary: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return primary.take(tmp_path_factory.mktemp("tars") / request.param, "-Ft", *PACKED[request.param])


@pytest.fixture(scope="module")
def plain(primary: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that is not compressed."""
    return primary.take(tmp_path_factory.mktemp("tar") / "backup", "-Ft") / "base.tar"


def checked(capsys: pytest.CaptureFixture[str], path: Path, code: int = 0) -> Any:
    capsys.readouterr()
    assert run(["page", "check", str(path), "--json"]) == code, capsys.readouterr()
    return json.loads(capsys.readouterr().out)


def extracted(backup: Path, to: Path) -> Path:
    """By tar: the base, the WAL, and each tablespace where its link leads to."""
    for archive in sorted(backup.glob("*.tar*")):
        stem = archive.name.partition(".")[0]
        folder = {"base": to, "pg_wal": to / "pg_wal"}.get(stem, to / "pg_tblspc" / stem)
        folder.mkdir(parents=True, exist_ok=True)
        how = ["-I", "lz4"] if archive.suffix == ".lz4" else ["-a"]
        subprocess.run(["tar", *how, "-xf", archive, "-C", folder], check=True, timeout=60)
    return to


@pytest.mark.live
def test_pages_of_archives_are_those_of_the_extracted_files(backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, wanted = checked(capsys, backup), checked(capsys, extracted(backup, tmp_path / "data"))
    assert found["problems"] == []
    assert {key: found["summary"][key] for key in SAME} == {key: wanted["summary"][key] for key in SAME}
    assert found["summary"]["checksums"] > 900
    assert found["summary"]["backups"] == [[str(backup), "tar archive"]]
    counted = [{of["kind"]: of["files"] for of in each["summary"]["not_checked"]} for each in (found, wanted)]
    assert counted[0] == counted[1]
    assert counted[0]["WAL"] == 1


@pytest.mark.live
def test_the_summary_says_what_was_not_done(backup: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["page", "check", str(backup)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"{backup}: tar archive, read in place; its files are not compared with its catalogs" in lines
    assert lines[-1] == "no problems in what was checked"


ROWS = """
select spcnode, dbnode, relfilenode, fork, segment, count(*) as n, bit_xor(hash(block, lp, lp_off, lp_flags, t_xmin, t_infomask)) as content
from heap_tuple join page_file using (file_id) group by all order by all
"""


@pytest.mark.live
def test_rows_of_a_scan_are_the_same(backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = []
    for place in (backup, extracted(backup, tmp_path / "data")):
        out = tmp_path / f"{place.name}.leadline"
        assert run(["page", "scan", str(place), "-o", str(out)]) == 0
        capsys.readouterr()
        assert run(["sql", str(out), ROWS, "--json"]) == 0
        rows.append(json.loads(capsys.readouterr().out))
    assert rows[0] == rows[1]
    assert len(rows[0]) > 60


@pytest.mark.live
def test_a_task_of_a_backup_is_read_where_nobody_listed_it(
    backup: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on another node of a cluster, which is given the task alone."""
    line = ["page", "scan", str(backup), "-o"]
    assert run([*line, str(tmp_path / "here.leadline")]) == 0

    def elsewhere(tasks: Iterable[Task], work: Any) -> Iterator[Receipt]:
        for task in tasks:
            yield run_task(json.loads(json.dumps(task)), work.keywords["directory"])

    monkeypatch.setattr(scan, "engine_of", lambda *_: elsewhere)
    assert run([*line, str(tmp_path / "there.leadline")]) == 0
    here, there = ((tmp_path / name / RECEIPTS).read_text() for name in ("here.leadline", "there.leadline"))
    assert here == there
    assert here.count("heap_tuple/") > 1  # base and tablespace


# A flipped byte.


def offset_of(archive: Path, member: str) -> int:
    with tarfile.open(archive) as tar:
        return tar.getmember(member).offset_data


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 0x10]) + content[at + 1 :]


def packed(content: bytes, how: str) -> bytes:
    if how == "plain":
        return content
    command = {"gzip": ["gzip", "-1"], "lz4": ["lz4", "-1"], "zstd": ["zstd", "-1"], "bzip2": ["bzip2", "-1"]}[how]
    return subprocess.run([*command, "-c"], input=content, capture_output=True, check=True, timeout=60).stdout


@pytest.mark.live
@pytest.mark.parametrize("how", ["plain", "gzip", "lz4", "zstd", "bzip2"])
def test_a_flipped_byte_is_named_by_file_and_block(
    how: str, primary: Source, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = flipped(plain.read_bytes(), offset_of(plain, primary.table) + 3 * BLOCK + 5000)
    archive = tmp_path / "base.tar"
    archive.write_bytes(packed(content, how))
    [problem] = checked(capsys, archive, code=1)["problems"]
    assert (problem["class"], problem["path"], problem["block"]) == ("checksum", f"{archive}/{primary.table}", 3)


@pytest.mark.live
def test_a_flipped_byte_of_a_tablespace(primary: Source, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "backup"
    shutil.copytree(plain.parent, folder)
    _, space, inside = primary.spaced.split("/", 2)
    archive = folder / f"{space}.tar"
    archive.write_bytes(flipped(archive.read_bytes(), offset_of(archive, inside) + 2 * BLOCK + 5000))
    [problem] = checked(capsys, folder, code=1)["problems"]
    assert (problem["class"], problem["path"], problem["block"]) == ("checksum", f"{folder}/{primary.spaced}", 2)


@pytest.mark.live
@pytest.mark.parametrize("how", ["gzip", "lz4", "zstd", "bzip2"])
def test_damaged_compression_says_from_which_block_on(
    how: str, primary: Source, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = packed(plain.read_bytes(), how)
    archive = tmp_path / "base.tar"
    archive.write_bytes(content[: len(content) // 2])
    found = checked(capsys, archive, code=1)
    classes = [(problem["class"], problem["path"]) for problem in found["problems"]]
    assert ("unreadable", f"{archive}/base.tar") in classes
    assert ("control", f"{archive}/global/pg_control") in classes
    assert {name for name, _ in classes} == {"unreadable", "control"}
    assert 0 < found["summary"]["pages"] < checked(capsys, plain)["summary"]["pages"]


@pytest.mark.live
def test_a_page_that_was_written_meanwhile_is_no_problem(
    primary: Source, plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was changed after the checkpoint that the backup begins at: its WAL has the whole of it."""
    folder = tmp_path / "backup"
    shutil.copytree(plain.parent, folder)
    manifest = json.loads((folder / "backup_manifest").read_text())
    [wal] = manifest["WAL-Ranges"]
    start, end = (int(high, 16) << 32 | int(low, 16) for high, low in (wal[key].split("/") for key in ("Start-LSN", "End-LSN")))
    archive = folder / "base.tar"
    content, at = archive.read_bytes(), offset_of(archive, primary.table) + BLOCK

    def with_lsn(lsn: int) -> Any:
        page = struct.pack("<II", lsn >> 32, lsn & 0xFFFFFFFF) + content[at + 8 : at + BLOCK]
        archive.write_bytes(content[:at] + page + content[at + BLOCK :])

    for lsn in (start - 8, end + 8):
        with_lsn(lsn)
        [problem] = checked(capsys, folder, code=1)["problems"]
        assert (problem["class"], problem["block"]) == ("checksum", 1)
    for lsn in (start, end):
        with_lsn(lsn)
        found = checked(capsys, folder)
        assert (found["problems"], found["summary"]["written_again"]) == ([], 1)


# Archives that others make, and that nobody should.


def member(name: str, content: bytes = b"", **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    about = tarfile.TarInfo(name)
    about.size = len(content)
    for key, value in more.items():
        setattr(about, key, value)
    return about, content


def archive_of(path: Path, *members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(path, "w", format=form) as tar:
        for about, content in members:
            tar.addfile(about, io.BytesIO(content) if content else None)
    return path


def test_links_devices_and_names_that_lead_out_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive = archive_of(
        tmp_path / "x.tar",
        member("./base/5/16384", bytes(BLOCK)),
        member("/base/5/16385", bytes(BLOCK)),
        member("base/5/../../../etc/16386", bytes(BLOCK)),
        member("base/5/16387", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        member("base/5/16388", type=tarfile.LNKTYPE, linkname="base/5/16384"),
        member("base/5/16389", type=tarfile.FIFOTYPE),
    )
    found = checked(capsys, archive, code=1)
    assert found["summary"]["kinds"] == {"new": 2}
    told = {problem["path"].removeprefix(f"{archive}/"): problem["message"] for problem in found["problems"]}
    assert list(told) == ["base/5/../../../etc/16386", "base/5/16387", "base/5/16388", "base/5/16389"]
    assert ["leads out" in told["base/5/../../../etc/16386"], "a link" in told["base/5/16387"]] == [True, True]


def test_pax_headers_and_long_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = f"{'d' * 90}/{'e' * 90}/base/5/16384"
    for number, form in enumerate((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT)):
        archive = archive_of(tmp_path / f"{number}.tar", member(deep, bytes(2 * BLOCK)), form=form)
        found = checked(capsys, archive)
        assert (found["summary"]["files"], found["summary"]["kinds"]) == (1, {"new": 2})


def test_a_sparse_file_of_gnu_tar_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "base/5").mkdir(parents=True)
    for name in ("16384", "16385"):
        with (tmp_path / "base/5" / name).open("wb") as file:
            file.truncate(100 * BLOCK)
            file.seek(50 * BLOCK)
            file.write(bytes([1]))
    (tmp_path / "base/5/16386").write_bytes(bytes(BLOCK))
    for form in ("gnu", "pax"):
        archive = tmp_path / f"{form}.tar"
        subprocess.run(["tar", f"--format={form}", "-Scf", archive, "-C", tmp_path, "base"], check=True, timeout=60)
        found = checked(capsys, archive, code=1)
        told = [(problem["class"], Path(problem["path"]).name) for problem in found["problems"]]
        assert told == [("unreadable", "16384"), ("unreadable", "16385")]
        assert all("sparse" in problem["message"] for problem in found["problems"])
        assert found["summary"]["pages"] == 1


def test_gzip_members_one_behind_the_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = archive_of(tmp_path / "x.tar", member("base/5/16384", bytes(3 * BLOCK)), member("base/5/16385", bytes(BLOCK))).read_bytes()
    for pack in (gzip.compress, bz2.compress, lambda part: packed(part, "lz4"), lambda part: packed(part, "zstd")):
        archive = tmp_path / "base.tar.packed"
        archive.write_bytes(b"".join(pack(content[at : at + 5000]) for at in range(0, len(content), 5000)))
        assert checked(capsys, archive)["summary"]["pages"] == 4


def test_an_archive_that_follows_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = archive_of(tmp_path / "x.tar", member("base/5/16384", bytes(BLOCK))).read_bytes()
    archive = tmp_path / "two.tar"
    archive.write_bytes(content + content)
    [problem] = checked(capsys, archive, code=1)["problems"]
    assert (problem["class"], "more follows" in problem["message"]) == ("unreadable", True)


def test_a_cut_archive_is_named_wherever_it_ends(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = archive_of(tmp_path / "x.tar", member("base/5/16384", bytes(BLOCK)), member("base/5/16385", bytes(2 * BLOCK))).read_bytes()
    archive = tmp_path / "cut.tar"
    # In the second file, before it, at the end of it without the mark of the end.
    for end, blocks in ((512 + BLOCK + 512 + 5000, 1), (512 + BLOCK, 1), (512 + BLOCK + 512 + 2 * BLOCK, 3)):
        archive.write_bytes(content[:end])
        found = checked(capsys, archive, code=1)
        assert "unreadable" in found["summary"]["classes"]
        assert found["summary"]["pages"] == blocks, end
        assert any(problem["path"] == f"{archive}/cut.tar" and "is cut off" in problem["message"] for problem in found["problems"])


def test_a_bomb_takes_no_memory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two gigabytes of zeros as a member, in two megabytes."""
    about = tarfile.TarInfo("base/5/16384")
    about.size = 2 << 30
    piece = gzip.compress(bytes(1 << 20), 9)
    archive = tmp_path / "x.tar.gz"
    with archive.open("wb") as file:
        file.write(gzip.compress(about.tobuf(tarfile.GNU_FORMAT)))
        for _ in range(1 << 11):
            file.write(piece)
        file.write(gzip.compress(bytes(1024)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = checked(capsys, archive)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    assert found["summary"]["kinds"] == {"new": 262144}


def test_archives_that_are_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content, kind in (
        ("x.tar", b"no archive" * 100, "unreadable"),
        ("y.tar.gz", gzip.compress(b"no archive" * 100), "unreadable"),
        ("z.tar", b"", "unreadable"),
    ):
        (tmp_path / name).write_bytes(content)
        [problem] = checked(capsys, tmp_path / name, code=1)["problems"]
        assert problem["class"] == kind
    archive_of(tmp_path / "empty.tar", member("notes", b"text"))
    assert checked(capsys, tmp_path / "empty.tar", code=2)["error"]["message"] == "this tar archive has no files of relations"
    (tmp_path / "x.tar.xz").write_bytes(b"\xfd7zXZ\0" + bytes(100))
    assert "by xz" in checked(capsys, tmp_path / "x.tar.xz", code=2)["error"]["detail"]
