"""leadline recover of a base backup against the server's own archive recovery: from the same backup and archive, to the same target."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from conftest import LONG, Server, wait_until
from leadline.engines.postgres.server.private import PrivateServer
from recovery import ClusterServer, differences, fingerprint, only_in_long_runs, recover
from restoring import (
    RUNNING,
    Backup,
    archive_all,
    backed_up,
    kill,
    plan_of,
    promoted,
    refusal_of_server,
    restore,
    restored_equally,
    rows,
    switched,
    take,
    take_by_pg_basebackup,
)
from servers import MAJORS

SMALL = ("backup_label", "tablespace_map", "postgresql.auto.conf", "recovery.signal")
TARGET = ("--to-name", "second")
BY_PG_BASEBACKUP = (14, 17)
BY_NAME = "recovery_target_name = 'second'"


@pytest.mark.parametrize("major", MAJORS)
def test_to_an_lsn_across_switches_of_timelines(major: int) -> None:
    with backed_up(major, taken_by=take_by_pg_basebackup if major in BY_PG_BASEBACKUP else None) as backup:
        switched(backup)
        mark, timeline = "third", 2
        if LONG or major == MAJORS[-1]:
            switched(backup, "third", "fourth")
            mark, timeline = "fourth", 3
        kind, value = backup.marks[f"{mark} lsn"]
        settings = {f"recovery_target_{kind}": value, "recovery_target_inclusive": "off"}
        assert plan_of(backup.restored("planned", **settings), backup)["timeline"] == timeline
        found = restored_equally(backup, settings, "--to-lsn", value, "--exclusive")
        assert f"before {mark}" in found[0] and "second" not in found[0] and found[-1] == timeline + 1


@pytest.fixture(scope="module")
def backup() -> Iterator[Backup]:
    with backed_up(16) as found:
        yield found


@pytest.fixture(scope="module")
def expected(backup: Backup) -> tuple[Path, dict[str, str]]:
    """What the server alone makes of the backup."""
    path = backup.restored("expected", recovery_target_name="second")
    return path, promoted(backup, path)


@pytest.fixture
def copy(backup: Backup) -> Iterator[Path]:
    yield backup.restored("copy", recovery_target_name="second")
    backup.removed("copy")


@only_in_long_runs
@pytest.mark.parametrize("major", MAJORS)
def test_a_backup_that_pg_basebackup_took(major: int) -> None:
    with backed_up(major, taken_by=take_by_pg_basebackup) as taken:
        found = restored_equally(taken, {"recovery_target_name": "second"})
        assert "second" in found[0] and "after second" not in found[0] and found[-1] == 2


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_restore_command_brings_the_wal(backup: Backup, copy: Path) -> None:
    command = f"echo %f >> {backup.server.private.base_dir}/asked; cp {backup.archive}/%f %p"
    asked = backup.server.private.base_dir / "asked"
    asked.touch()
    asked.chmod(0o666)
    done = recover(copy, "--restore-command", command, "--plan")
    assert done.returncode == 0, done.stderr
    planned = asked.read_text().split()
    assert planned[0] == "00000002.history" and len(planned) == len(set(planned)) > 2
    done = recover(copy, "--restore-command", command)
    assert done.returncode == 0, done.stderr
    assert "second" in rows(backup, copy)[0]


def test_segments_of_the_archive_may_be_compressed(backup: Backup, copy: Path) -> None:
    archive = backup.server.private.base_dir / "compressed"
    archive.mkdir(mode=0o755)
    packed = {".gz": gzip.compress, ".lz4": pyarrow.Codec("lz4").compress, ".zst": pyarrow.Codec("zstd").compress}
    for number, path in enumerate(sorted(backup.archive.iterdir())):
        suffix = list(packed)[number % 3] if not path.name.endswith(".backup") else ""
        content = path.read_bytes()
        # Every other one keeps its name: the bytes tell.
        name = f"{path.name}{suffix}" if number % 2 else path.name
        if number % 3 == 2 and len(path.name) == 24:  # as pgBackRest keeps them
            (archive / path.name[:16]).mkdir(mode=0o755, exist_ok=True)
            name = f"{path.name[:16]}/{path.name}-{hashlib.sha1(content).hexdigest()}{suffix}"
        (archive / name).write_bytes(bytes(packed[suffix](content)) if suffix else content)
    assert {path.suffix for path in archive.rglob("*")} >= {*packed, ""}
    assert len(list(archive.glob("*/*-*.zst"))) > 0
    done = recover(copy, "--archive", archive)
    assert done.returncode == 0, done.stderr
    assert "second" in rows(backup, copy)[0]


def test_an_archive_that_pgbackrest_encrypted(backup: Backup, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Encrypted by openssl, which does it alike: archive.info has the key of the files."""
    stanza = backup.server.private.base_dir / "stanza"
    archive = stanza / "16-1"
    archive.mkdir(mode=0o755, parents=True)
    stanza.chmod(0o755)

    def encrypted(content: bytes, key: str) -> bytes:
        line = ["openssl", "enc", "-aes-256-cbc", "-md", "sha1", "-pass", f"pass:{key}"]
        return subprocess.run(line, input=content, capture_output=True, check=True, timeout=60).stdout

    info = b'[backrest]\nbackrest-format=5\n\n[cipher]\ncipher-pass="of the files"\n'
    (stanza / "archive.info").write_bytes(encrypted(info, "of a user"))
    for path in backup.archive.iterdir():
        content = path.read_bytes()
        if len(path.name) == 24:
            (archive / path.name[:16]).mkdir(mode=0o755, exist_ok=True)
            name = f"{path.name[:16]}/{path.name}-{hashlib.sha1(content).hexdigest()}.gz"
            content = gzip.compress(content, 1)
        else:
            name = path.name
        (archive / name).write_bytes(encrypted(content, "of the files"))
    done = recover(copy, "--archive", archive)
    assert (done.returncode, "this archive is encrypted, and no key is given" in done.stderr) == (2, True)
    monkeypatch.setenv("PGBACKREST_REPO1_CIPHER_PASS", "of a user")
    done = recover(copy, "--archive", archive)
    assert done.returncode == 0, done.stderr
    assert "second" in rows(backup, copy)[0]


def test_an_archive_in_a_tar(backup: Backup, copy: Path) -> None:
    packed = backup.server.private.base_dir / "archive.tar.gz"
    subprocess.run(["tar", "-czf", packed, "-C", backup.archive, "."], check=True, timeout=60)
    packed.chmod(0o644)
    done = recover(copy, "--archive", packed)
    assert done.returncode == 0, done.stderr
    assert "second" in rows(backup, copy)[0]


@pytest.mark.parametrize("again", ["server", "leadline"])
def test_killed_while_it_writes_it_is_recovered_again(backup: Backup, expected: tuple[Path, dict[str, str]], again: str) -> None:
    copy = backup.restored(f"killed-{again}", recovery_target_name="second", recovery_target_timeline="1")
    for phase in ("pages", "hand over") if again == "leadline" else ("status",):
        kill(copy, backup, phase)
        assert not (copy / "backup_label").exists()
    if again == "leadline":
        done = restore(copy, backup)
        assert done.returncode == 0, done.stderr
        assert "Recovered up to the checkpoint at" in done.stdout
    assert promoted(backup, copy) == expected[1]
    assert differences(expected[0], copy) == []
    backup.removed(copy.name)


def test_a_server_that_was_stopped_in_archive_recovery_goes_on(backup: Backup, expected: tuple[Path, dict[str, str]]) -> None:
    stopped = backup.restored("stopped", recovery_target_name="first", recovery_target_action="shutdown")
    assert "recovery stopping at restore point" in refusal_of_server(backup.server, stopped)
    edit(stopped / "postgresql.auto.conf", "'first'", "'second'")
    edit(stopped / "postgresql.auto.conf", "'shutdown'", "'promote'")
    done = restore(stopped, backup)
    assert done.returncode == 0, done.stderr
    assert "Recovered up to the checkpoint at" in done.stdout
    assert promoted(backup, stopped) == expected[1]
    assert differences(expected[0], stopped) == []
    backup.removed("stopped")


class StandbyServer(ClusterServer):
    """Which never says that it accepts connections for writing."""

    _wait_until_ready = PrivateServer._wait_until_ready


def test_a_standby_goes_on_from_there(backup: Backup, copy: Path) -> None:
    (copy / "recovery.signal").rename(copy / "standby.signal")
    edit(copy / "postgresql.auto.conf", BY_NAME, "")
    done = restore(copy, backup, "--to-end")
    assert done.returncode == 0, done.stderr
    assert "Recovered up to the checkpoint at" in done.stdout
    with StandbyServer(backup.server.private.bin_dir, copy, settings=RUNNING) as private:
        standby = Server(private, backup.server.fetched)
        wait_until(lambda: standby.sql("select count(*) from later where v = 'end'") == [(1001,)], what="all of the archive")
        assert standby.sql("select pg_is_in_recovery()") == [(True,)]


@pytest.mark.parametrize("major", MAJORS if LONG else [15])
def test_a_backup_that_was_taken_from_a_standby(major: int) -> None:
    with backed_up(major) as backup:
        path = backup.restored("standby", primary_conninfo=backup.server.private.dsn)
        (path / "recovery.signal").rename(path / "standby.signal")
        taken = Backup(backup.server, backup.archive, backup.server.private.base_dir / "taken")
        with StandbyServer(backup.server.private.bin_dir, path, settings=RUNNING) as private:
            standby = Server(private, backup.server.fetched)
            [lsn] = backup.server.sql("select pg_current_wal_lsn()")
            wait_until(lambda: standby.sql("select pg_last_wal_replay_lsn() >= %s::pg_lsn", lsn) == [(True,)], what="all of the log")
            take(taken, standby)
        assert "BACKUP FROM: standby" in (taken.path / "backup_label").read_text()
        with backup.server.connect() as connection:
            connection.execute("update a set n = n + 9 where id % 3 = 0")
            connection.execute("checkpoint")
        taken.mark("third")
        with backup.server.connect() as connection:
            connection.execute("delete from a where id % 31 = 0")
        archive_all(taken)
        found = restored_equally(taken, {"recovery_target_name": "third"})
        assert "third" in found[0] and "after third" not in found[0] and found[-1] == 2


def test_a_plan_writes_nothing(backup: Backup, shared: Path) -> None:
    before = fingerprint(shared)
    plan = plan_of(shared, backup)
    restored = plan["backup"]
    assert fingerprint(shared) == before
    lsn = [int(high, 16) << 32 | int(low, 16) for high, low in (restored[f"{name}_lsn"].split("/") for name in (
        "consistent", "redo", "restartpoint", "target"))]  # fmt: skip
    assert lsn == sorted(lsn) and plan["commits"] > 50 and restored["left_bytes"] == lsn[3] - lsn[1]


def test_a_target_without_a_checkpoint_before_it_is_left_to_the_server(backup: Backup, refused: Path) -> None:
    (refused / "postgresql.auto.conf").write_text("")
    plan = plan_of(refused, backup, "--to-end")
    lsn = plan["backup"]["consistent_lsn"]
    before = fingerprint(refused)
    done = restore(refused, backup, "--to-lsn", lsn)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("There is no checkpoint between")
    assert fingerprint(refused) == before


def archive_without(backup: Backup, name: str, is_left_out: Callable[[int, int, int], bool]) -> Path:
    """Links to the files of the archive but for some segments: by their place, that of the backup's first one, and how many there are."""
    path = backup.server.private.base_dir / name
    path.mkdir(mode=0o755)
    segments = sorted(file for file in backup.archive.iterdir() if len(file.name) == 24)
    label = (backup.path / "backup_label").read_text()
    first = next(number for number, file in enumerate(segments) if f"(file {file.name})" in label)
    for number, file in enumerate(segments):
        if not is_left_out(number, first, len(segments)):
            (path / file.name).symlink_to(file)
    return path


@pytest.fixture(scope="module")
def shared(backup: Backup) -> Path:
    """A copy that no recovery changes."""
    return backup.restored("shared", recovery_target_name="second")


@pytest.fixture
def refused(backup: Backup, shared: Path) -> Iterator[Path]:
    """The same; what a test does to its small files is undone."""
    before = {name: (shared / name).read_bytes() for name in SMALL}
    yield shared
    for name, content in before.items():
        (shared / name).write_bytes(content)
        backup.server.private.user.own(shared / name)


# What is done to the copy, options of leadline, its message, and the server's where it has one and changes nothing else either.
REFUSALS: dict[str, tuple[Callable[[Path], Any], tuple[str, ...], str, str]] = {
    "signal": (lambda d: (d / "recovery.signal").unlink(), TARGET, "not set up for archive recovery", ""),
    "incremental": (lambda d: (d / "backup_label").open("a").write("INCREMENTAL FROM LSN: 0/2000028\n"), TARGET, "incremental backup", ""),
    "label": (lambda d: edit(d / "backup_label", "CHECKPOINT LOCATION", "PLACE"), TARGET, "backup_label is damaged",
              "invalid data in file"),
    "timeline": (lambda d: edit(d / "backup_label", "START TIMELINE: 1", "START TIMELINE: 2"), TARGET, "backup_label is damaged",
                 "invalid data in file"),
    "tablespace": (lambda d: edit(d / "tablespace_map", "shared-space", "gone"), TARGET, "the folder of a tablespace is missing", ""),
    "no label": (lambda d: (d / "backup_label").unlink(), TARGET, "there is no backup_label", ""),
    "settings": (lambda d: None, ("--to-end",), "is not that of the server", ""),
    "immediate": (lambda d: edit(d / "postgresql.auto.conf", BY_NAME, "recovery_target = 'immediate'"), (),
                  "recovery_target is immediate", ""),
    "no target": (lambda d: edit(d / "postgresql.auto.conf", BY_NAME, ""), (), "no recovery target was given", ""),
    "unknown timeline": (lambda d: None, (*TARGET, "--to-timeline", "7"), "does not know timeline 7", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_what_is_refused_is_left_as_it_was(backup: Backup, refused: Path, name: str) -> None:
    change, options, message, of_server = REFUSALS[name]
    change(refused)
    before = fingerprint(refused)
    done = restore(refused, backup, *options)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert fingerprint(refused) == before
    if of_server:
        assert of_server in refusal_of_server(backup.server, refused)


# The same of what the server refuses after it has replayed all it can.
LATE: dict[str, tuple[str, str, str, str]] = {
    "standby": ("backup_label", "FROM: primary", "FROM: standby", "inconsistent with control file"),
    "not reached": ("postgresql.auto.conf", "'second'", "'elsewhere'", "recovery ended before configured recovery target was reached"),
    "too early": ("postgresql.auto.conf", BY_NAME, "recovery_target_lsn = '0/2000000'",
                  "requested recovery stop point is before consistent recovery point"),
}  # fmt: skip
MESSAGES = {
    "standby": "does not match pg_control",
    "not reached": "ends before the recovery target",
    "too early": "the recovery target is before",
}


@pytest.mark.parametrize("name", LATE)
def test_what_the_server_refuses_in_the_end_is_refused_before(backup: Backup, copy: Path, name: str) -> None:
    file, old, new, of_server = LATE[name]
    edit(copy / file, old, new)
    before = fingerprint(copy)
    done = restore(copy, backup)
    assert done.returncode == 2, done.stdout
    assert MESSAGES[name] in done.stderr
    assert fingerprint(copy) == before
    assert of_server in refusal_of_server(backup.server, copy)


ARCHIVES: dict[str, tuple[Callable[[int, int, int], bool], str, str]] = {
    "empty": (lambda n, first, count: True, "the WAL does not begin where replay must begin", "could not locate required checkpoint"),
    "gap": (lambda n, first, count: n == count - 3, "the archived WAL has a gap", ""),
    "end": (lambda n, first, count: n > first, "ends before the end of the backup", "WAL ends before"),
}


@pytest.mark.parametrize("name", ARCHIVES)
def test_an_archive_that_lacks_something_is_refused(backup: Backup, copy: Path, name: str) -> None:
    is_left_out, message, of_server = ARCHIVES[name]
    archive = archive_without(backup, name, is_left_out)
    edit(copy / "postgresql.auto.conf", BY_NAME, "")
    edit(copy / "postgresql.auto.conf", f"cp {backup.archive}/", f"cp {archive}/")
    before = fingerprint(copy)
    done = recover(copy, "--archive", archive, "--to-end")
    assert done.returncode == 2, done.stdout
    assert message in done.stderr
    assert fingerprint(copy) == before
    if of_server:
        assert of_server in refusal_of_server(backup.server, copy)


def test_without_its_archive_a_backup_is_refused(shared: Path) -> None:
    done = recover(shared)
    assert (done.returncode, "--archive" in done.stderr) == (2, True)
    done = recover(shared, "--to-end")
    assert (done.returncode, "needs the archived WAL" in done.stderr) == (2, True)
