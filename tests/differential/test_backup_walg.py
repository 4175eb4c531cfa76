"""Delta backups of WAL-G put together. Oracle: the files and the rows of the server at the moment of the last one.

The backups are made as WAL-G's source says; test_backup_walg_real.py has those of WAL-G itself.
"""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from conftest import fetched_or_skip
from leadline._core.backups import BackupFiles
from leadline.cli import run
from quiet_tables import copied, without_places
from recovery import ChecksummedServer
from tar_backups import SETTINGS, tool_dir
from walg_changes import STEPS, TABLES
from walg_samples import BLOCK, increment, partition, pushed

pytestmark = pytest.mark.live


@dataclass(frozen=True)
class Chain:
    """The full backup and two delta backups; copies: of the data directory at the same moments; rows: after the last one."""

    backups: list[Path]
    copies: list[Path]
    rows: dict[str, str]
    table: str

    def moved(self, folder: Path) -> list[Path]:
        """The same backups in another folder."""
        to = shutil.copytree(self.backups[0].parent, folder / "basebackups_005")
        return [to / backup.name for backup in self.backups]


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chain]:
    folder = tmp_path_factory.mktemp("walg")
    backups: list[Path] = []
    copies: list[Path] = []
    with ChecksummedServer(fetched_or_skip(16).bin_dir, settings=SETTINGS) as server:
        space = server.data_dir.parent / "space"
        space.mkdir()
        server._server_user().own(space)
        with psycopg.connect(server.dsn, autocommit=True) as connection:
            connection.execute(f"create tablespace space location '{space}'")
            for number, statements in enumerate(STEPS):
                for statement in statements:
                    connection.execute(statement)
                copies.append(folder / f"copy-{number}")
                line = [tool_dir(16) / "pg_basebackup", "-d", server.dsn, "-c", "fast", "-D", copies[-1]]
                line.append(f"--tablespace-mapping={space}={folder}/space-{number}")
                done = subprocess.run([str(word) for word in line], capture_output=True, text=True, timeout=120)
                assert done.returncode == 0, done.stderr
                link_to_folder(copies[-1])
                before = (backups[-1], copies[-2]) if backups else None
                backups.append(pushed(folder, copies[-1], before))
            rows = {name: copied(connection, name) for name in TABLES}
            [table] = connection.execute("select pg_relation_filepath('t')").fetchone() or ("",)
    yield Chain(backups, copies, rows, table)


def link_to_folder(copy: Path) -> None:
    for link in (copy / "pg_tblspc").iterdir():
        space = link.resolve()
        link.unlink()
        space.rename(link)


def rows(capsys: pytest.CaptureFixture[str], table: str, *words: object, code: int = 0) -> tuple[str, str]:
    capsys.readouterr()
    assert run(["rows", str(words[0]), table, *map(str, words[1:]), "--csv"]) == code, capsys.readouterr()
    said = capsys.readouterr()
    return without_places(said.out), said.err


def error(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, str]:
    capsys.readouterr()
    assert run(["rows", str(words[0]), "t", *map(str, words[1:]), "--json"]) == 2
    found: dict[str, str] = json.loads(capsys.readouterr().out)["error"]
    return found


def metadata(backup: Path) -> dict[str, dict[str, bool]]:
    files: dict[str, dict[str, bool]] = json.loads((backup / "files_metadata.json").read_text())["Files"]
    return files


def test_the_files_are_those_of_the_server(chain: Chain, tmp_path: Path) -> None:
    files = BackupFiles.open(str(chain.backups[-1]), [])
    assert files is not None
    wanted = {str(path.relative_to(chain.copies[-1])): path for path in chain.copies[-1].rglob("*") if path.is_file()}
    names = {name for name in wanted if re.match(r"(base|global|pg_tblspc|pg_xact)/", name)}
    assert {name for name in files.files() if re.match(r"(base|global|pg_tblspc|pg_xact)/", name)} == names and len(names) > 800
    assert all(files.files()[name] >= wanted[name].stat().st_size for name in names)
    assert files.extract(str(tmp_path), names) == []
    for name in names:
        assert (tmp_path / name).read_bytes() == wanted[name].read_bytes(), name


def test_rows_are_those_of_the_server(chain: Chain, capsys: pytest.CaptureFixture[str]) -> None:
    about = metadata(chain.backups[-1])
    assert about[f"/{chain.table}"]["IsIncremented"] and sum(file["IsSkipped"] for file in about.values()) > 500
    for table in TABLES:
        out, err = rows(capsys, table, chain.backups[-1])
        assert out == chain.rows[table], table
        assert "warning" not in err and "note: WAL-G backup: " in err
    assert "no table named gone" in rows(capsys, "gone", chain.backups[-1], code=2)[1]
    named = ["--based-on", chain.backups[0], "--based-on", chain.backups[1]]
    assert rows(capsys, "t", chain.backups[-1], *named)[0] == chain.rows["t"]


def test_all_rows_are_saved(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["salvage", str(chain.backups[-1]), "-o", str(tmp_path / "saved")]) == 0, capsys.readouterr()
    saved = "\n".join(path.read_text() for path in (tmp_path / "saved").rglob("*") if path.is_file())
    assert "-9500" in saved and "unchanged 777" in saved


def test_a_delta_backup_without_the_one_before_is_refused(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full, first, second = chain.moved(tmp_path)
    skipped = error(capsys, second, "--based-on", full)
    assert (skipped["message"], skipped["where"]) == ("the backups cannot be combined", str(full))
    place = r"0/\w+"
    told = rf"it begins at {place} on timeline 1, but {second} is based on the one that begins at {place}"
    assert re.fullmatch(told, skipped["detail"])
    shutil.rmtree(first)
    lost = error(capsys, second)
    assert (lost["message"], lost["where"]) == ("the backup that this one is based on is not there", str(second))
    assert lost["detail"] == f"{first}" and "--based-on" in lost["hint"]


def test_damage_is_named_by_file_and_block(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, second = chain.moved(tmp_path)
    name, folder = f"/{chain.table}", second / "tar_partitions"
    content = bytearray((chain.copies[-1] / chain.table).read_bytes())
    content[3 * BLOCK + 5000] ^= 1
    partition(folder / "part_3.tar.lz4", {name: increment(bytes(content), [3])})
    capsys.readouterr()
    assert run(["page", "check", str(second), "--json"]) == 1
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["class"], problem["block"], problem["path"].endswith(f"INCREMENTAL.{Path(name).name}")) == ("checksum", 3, True)

    # What is no increment ends neither the archive nor the file that it is of without a word.
    for broken in (bytes(BLOCK), b"wi1\x55", increment(bytes(content), [3])[:-1], b"wi1\x55" + bytes(8) + b"\xff" * 4 + bytes(100)):
        partition(folder / "part_3.tar.lz4", {name: broken, "/base/5/99999": bytes(BLOCK)})
        capsys.readouterr()
        assert run(["page", "check", str(second), "--json"]) == 1
        [problem] = json.loads(capsys.readouterr().out)["problems"]
        assert problem["class"] == "unreadable" and "this is no increment of WAL-G" in problem["found"]
        _, err = rows(capsys, "t", second, code=1)
        assert re.search(rf"warning: {chain.table} is damaged in the backup, or not whole: this is no increment of WAL-G: ", err)


def test_a_file_that_the_earlier_backups_lost_is_named(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full, _, second = chain.moved(tmp_path)
    for part in (full / "tar_partitions").glob("part_*"):
        done = subprocess.run(["lz4", "-d", "-c", part], capture_output=True, check=True, timeout=60)
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
            members = {about.name: tar.extractfile(about).read() for about in tar.getmembers()}  # type: ignore[union-attr]
        partition(part, {name: content for name, content in members.items() if name != f"/{chain.table}"})
    _, err = rows(capsys, "t", second, code=1)
    why = f"{full} does not have it, or its blocks that did not change"
    assert f"warning: {chain.table} is damaged in the backup, or not whole: {why}\n" in err
    assert rows(capsys, "new", second, code=1)[0] == chain.rows["new"]
    capsys.readouterr()
    assert run(["page", "check", str(full), "--json"]) == 1
    [problem] = json.loads(capsys.readouterr().out)["problems"]
    assert (problem["class"], problem["path"]) == ("unreadable", f"{full}/{chain.table}")
    assert problem["found"] == "it is in the list of the backup, and in none of its archives"


def test_what_was_cut_off_between_does_not_come_back(chain: Chain, tmp_path: Path) -> None:
    """A list of changes that is made of the WAL lacks pages of zeros that a file grew by, since no record is of them."""
    second = chain.moved(tmp_path)[-1]
    before, between, after = ({path.name: path for path in (copy / "base" / "5").iterdir()} for copy in chain.copies)
    sizes = {
        name: [files[name].stat().st_size // BLOCK for files in (before, between, after)]
        for name in before
        if name in between and name in after
    }
    [(name, (_, cut, grown))] = [(name, size) for name, size in sizes.items() if min(size[0], size[2]) > size[1] + 10]
    content = after[name].read_bytes()
    lacks = cut + 5
    listed = [block for block in range(grown) if block != lacks]
    partition(second / "tar_partitions" / "part_3.tar.lz4", {f"/base/5/{name}": increment(content, listed)})
    files = BackupFiles.open(str(second), [])
    assert files is not None and files.extract(str(tmp_path), {f"base/5/{name}"}) == []
    found = (tmp_path / "base" / "5" / name).read_bytes()
    assert found == content[: lacks * BLOCK] + bytes(BLOCK) + content[(lacks + 1) * BLOCK :]


def test_an_archive_without_a_mark_of_its_end_is_whole(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """WAL-G cuts up what comes by a connection of replication, and leaves the mark out of some of the parts."""
    full = chain.moved(tmp_path)[0]
    part = full / "tar_partitions" / "part_1.tar.lz4"
    done = subprocess.run(["lz4", "-d", "-c", part], capture_output=True, check=True, timeout=60)
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as tar:
        last = tar.getmembers()[-1]
        end = last.offset_data + -(-last.size // 512) * 512
    for kept, code in ((end, 0), (last.offset, 1), (end - 512, 1)):  # all members, all but one, and a part of one
        packed = subprocess.run(["lz4", "-1", "-c"], input=done.stdout[:kept], capture_output=True, check=True, timeout=60)
        part.write_bytes(packed.stdout)
        assert run(["page", "check", str(full)]) == code, capsys.readouterr()


def test_an_old_backup_label_of_the_data_directory_does_not_count(chain: Chain, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, _, second = chain.moved(tmp_path)
    old = b"START WAL LOCATION: 0/1000028 (file 000000010000000000000001)\nSTART TIMELINE: 1\n"
    partition(second / "tar_partitions" / "part_3.tar.lz4", {"/backup_label": old})
    files = BackupFiles.open(str(second), [])
    assert files is not None
    assert files.small("backup_label") == (chain.copies[-1] / "backup_label").read_bytes()
    files.extract(str(tmp_path), {"backup_label"})
    assert (tmp_path / "backup_label").read_bytes() == (chain.copies[-1] / "backup_label").read_bytes()
