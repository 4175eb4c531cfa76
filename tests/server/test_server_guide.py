"""The guide for a team is run as it stands, in a book of its own."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import is_running, no_oracle
from leadline.book import command
from leadline.book.place import Place
from leadline.engines.postgres.target import PostgresServer
from leadline.host import proc
from leadline.server import background
from serving import Served, book, wait_until

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "team.md"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_the_guide_runs(tmp_path: Path) -> None:
    for program in ("curl", "openssl"):
        if shutil.which(program) is None:
            no_oracle(f"{program} is not installed")
    blocks = [block for block in re.findall(r"```sh\n(.*?)```", GUIDE.read_text(), re.DOTALL) if "pip install" not in block]
    assert len(blocks) == 12
    (tmp_path / "recorded/20261129T120000Z.leadline").mkdir(parents=True)
    script = "set -eu\n" + "".join(f"echo '## {n}'\n{block}\necho\n" for n, block in enumerate(blocks))
    script = script.replace("/var/lib/leadline/shop", f"{tmp_path}/recorded")
    environment = {k: v for k, v in os.environ.items() if k != "LEADLINE_RUN"}
    environment |= {"LEADLINE_BOOK": str(tmp_path / "book"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    port = free_port()
    (tmp_path / "leadline").write_text(
        f'#!/bin/sh\n[ "$1 $2" = "serve --background" ] && exec {sys.executable} -m leadline serve --background --listen 127.0.0.1:{port}\n'
        f'exec {sys.executable} -m leadline "$@"\n'
    )
    (tmp_path / "leadline").chmod(0o755)
    done = subprocess.run(
        ["bash", "-c", script.replace("127.0.0.1:9191", f"127.0.0.1:{port}")], env=environment, capture_output=True, text=True, timeout=200
    )
    subprocess.run([str(tmp_path / "leadline"), "serve", "--stop"], env=environment, capture_output=True, timeout=60)
    said = dict(re.findall(r"## (\d+)\n(.*?)(?=\n## |\Z)", done.stdout, re.DOTALL))
    assert done.returncode == 0, done.stdout + done.stderr
    assert said["4"].split() == ["1", "2", "3", "4", "5", "ok"]
    assert '"kind": "rights"' in said["5"] and said["5"].strip().endswith("refused")
    assert '"run": ' in said["10"]
    assert "stopped: process " in said["11"]


def test_the_unit_runs_as_an_ordinary_user_and_leaves_runs_alone() -> None:
    [text] = re.findall(r"```ini\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    unit = configparser.ConfigParser()
    unit.read_string(text)
    service = dict(unit["Service"])
    assert (service["user"], service["killmode"]) == ("leadline", "process")
    assert service["execstart"].split() == ["/usr/bin/env", "leadline", "serve"]


WITHOUT_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")


def test_an_ordinary_user_needs_nothing_else(tmp_path: Path) -> None:
    """Where the tests run as root, with no right that an ordinary user has not."""
    with book(tmp_path) as served:
        served.prefix = WITHOUT_RIGHTS if os.geteuid() == 0 else ()
        served.user("ann", "--admin")
        served.do("secret", "key")
        served.start()
        assert served.process is not None
        status = Path(f"/proc/{served.process.pid}/status").read_text()
        assert re.findall(r"^Cap(?:Prm|Eff|Bnd):\t(\w+)$", status, re.MULTILINE)[:2] == ["0" * 16] * 2
        client = served.client(token=served.token_of("ann"))
        command = "sh -c 'echo begun; sleep 1000 & sleep 1000'"
        template = client.call("PUT", "/projects/main/templates/naps", command=command).json["template"]
        uid = client.call("POST", f"/templates/{template}/start").json["run"]
        wait_until(lambda: client.get(f"/api/v1/runs/{uid}/output").text == "begun\n", "its output")
        assert client.call("POST", f"/runs/{uid}/cancel").status == 200
        wait_until(lambda: client.call("GET", f"/runs/{uid}").json["run"]["status"] == "cancelled", "its end")
        assert client.call("GET", f"/runs/{uid}/export").status == 200
        assert served.complaints() == ""


def test_a_server_in_the_background_is_found_and_stopped_by_its_own_process(tmp_path: Path) -> None:
    with book(tmp_path) as served:
        started = served.do("serve", "--background", "--listen", "127.0.0.1:0")
        try:
            served.url = started["url"].rstrip("/")
            assert served.client().get("/healthz").json == {"ok": True}
            assert (served.book / "server.json").stat().st_mode & 0o777 == 0o600
            again = served.leadline("serve", "--background", "--listen", "127.0.0.1:0")
            assert (again.returncode, "is running already" in again.stderr) == (2, True)
        finally:
            assert served.do("serve", "--stop") == {"stopped": started["pid"]}
        assert not is_running(started["pid"])
        none = served.leadline("serve", "--stop")
        assert (none.returncode, "no server of this book is running" in none.stderr) == (2, True)


def test_what_is_noted_of_another_process_is_not_stopped(tmp_path: Path) -> None:
    with book(tmp_path) as served:
        served.book.mkdir()
        (served.book / "server.json").write_text(f'{{"pid": {os.getpid()}, "start": 1, "url": "http://x/"}}')
        assert served.leadline("serve", "--stop").returncode == 2


def test_a_server_that_only_waits_for_its_parent_to_look_does_not_run(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with subprocess.Popen(["true"]) as zombie:
        wait_until(lambda: "Z" in (proc.read_text(f"/proc/{zombie.pid}/stat") or "").rpartition(")")[2].split()[:1], "its end")
        start = proc.start_ticks(zombie.pid)
        (tmp_path / "server.json").write_text(json.dumps({"pid": zombie.pid, "start": start, "url": "http://x/"}))
        assert background.running(place) is None
        assert (proc.lives(zombie.pid, start), proc.lives(os.getpid(), proc.start_ticks(os.getpid()))) == (False, True)
        run = {"status": "running", "host": os.uname().nodename, "pid": zombie.pid, "pid_start": start, "kind": "command"}
        assert command.cancel(run) is False
        assert not PostgresServer("pid", zombie.pid, start_ticks=start).is_running()


@pytest.mark.parametrize("listen", ["nowhere", "127.0.0.1", "127.0.0.1:99999", "no.such.host.example:1", "127.0.0.1:x"])
def test_an_address_that_is_none_is_one_error(served_none: Served, listen: str) -> None:
    done = served_none.leadline("serve", "--listen", listen)
    assert (done.returncode, done.stderr.count("error: ")) == (2, 1), done.stderr


@pytest.fixture(scope="module")
def served_none(tmp_path_factory: pytest.TempPathFactory) -> Served:
    with book(tmp_path_factory.mktemp("none")) as served:
        return served


def test_an_address_in_use_is_told(served_none: Served) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = served_none.leadline("serve", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
        assert done.returncode == 2
        assert "Address already in use" in done.stderr


def test_files_of_the_book_are_for_their_owner_alone(tmp_path: Path) -> None:
    with book(tmp_path) as served:
        served.start()
        served.client().call("POST", "/secrets/key")
        served.client().call("PUT", "/projects/main/templates/t", command="true")
        template = served.client().call("GET", "/templates").json["templates"][0]["uid"]
        served.client().call("POST", f"/templates/{template}/start")
        served.stop()
        open_to_others = [str(path) for path in (served.book, *served.book.rglob("*")) if path.lstat().st_mode & 0o077]
        assert open_to_others == []


@pytest.mark.parametrize("redirected", [">/dev/full", ">&-"])
def test_an_address_that_cannot_be_told_is_one_error(served_none: Served, redirected: str) -> None:
    command = f'exec "$@" {redirected}'
    line = ["sh", "-c", command, "sh", sys.executable, "-m", "leadline", "serve", "--listen", "127.0.0.1:0"]
    done = subprocess.run(line, env=served_none.environment, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("error: ")) == (2, 1), done.stderr
