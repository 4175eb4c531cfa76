"""How well a data directory is: clean, running, crashed, copied and backed-up ones of every major, and what is said of each.

Oracle: what was done to the server.
"""

from __future__ import annotations

import signal
from pathlib import Path

from conftest import Server, copy_folder
from leadline._core.datadir import condition


def names(data_dir: Path) -> tuple[str, list[str]]:
    found = condition(str(data_dir))
    assert found is not None
    return found["server"], [remark["name"] for remark in found["remarks"]]


def test_a_clean_server_is_running_and_then_stopped(pg: Server, fresh_server, tmp_path: Path) -> None:
    server = fresh_server(pg.major)
    data = Path(server.private.data_dir)
    found = condition(str(data))
    assert found is not None and (found["server"], found["pid"]) == ("running", server.pid)
    assert [remark["name"] for remark in found["remarks"]] == ["running"]
    relation = data / server.sql("select pg_relation_filepath('pg_class')")[0][0]
    of_file = condition(str(relation))
    assert of_file is not None and of_file["pid"] == server.pid

    (tmp_path / "copy").mkdir()
    copy_folder(data, tmp_path / "copy")
    assert names(tmp_path / "copy") == ("copied", ["copied"])

    server.private.stop()
    assert names(data) == ("stopped", [])
    version = data / "PG_VERSION"
    version.write_text("9\n")
    found = condition(str(data))
    assert found is not None and [r["message"] for r in found["remarks"]] == [f"PG_VERSION says 9, but pg_control is from {pg.major}"]


def test_a_killed_server_crashed_and_recovers(fresh_server) -> None:
    server = fresh_server(17)
    data = Path(server.private.data_dir)
    process = server.private._process
    process.send_signal(signal.SIGQUIT)  # immediate: no checkpoint, as after a crash
    process.wait(30)
    assert names(data) == ("crashed", ["crashed"])
    server.private.start()
    server.private.stop()
    assert names(data) == ("stopped", [])


def test_a_backup_is_restoring_by_its_label(fresh_server, tmp_path: Path) -> None:
    server = fresh_server(16)
    backup = tmp_path / "backup"
    backup.mkdir()
    with server.connect() as connection:
        connection.execute("select pg_backup_start('test', true)")
        copy_folder(Path(server.private.data_dir), backup)
        label = connection.execute("select labelfile from pg_backup_stop()").fetchone()
    assert label is not None
    (backup / "postmaster.pid").unlink()
    (backup / "backup_label").write_text(label[0])
    assert names(backup) == ("restoring", ["restoring"])


def test_a_folder_that_is_none_has_no_condition(tmp_path: Path) -> None:
    assert condition(str(tmp_path / "x")) is None
