"""The MySQL protocol against a real server: MariaDB, its own client beside ours."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle, wait_until
from leadline._core.net import dbping
from leadline.capture.making import Making
from leadline.capture.manifest import ProbeState, Target
from leadline.capture.reader import Capture, open_capture
from leadline.errors import LeadlineError
from leadline.net import auth
from leadline.net.budget import budgets
from leadline.net.login import mysql_server_of
from leadline.probes.wire import WireProbe

pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="capturing packets needs root")]

SECRET = "swordfish-0815"
USERS = f"""
create database shop;
create user app@'127.0.0.1' identified by '{SECRET}';
create user careful@'127.0.0.1' identified by '{SECRET}' require ssl;
grant all on shop.* to app@'127.0.0.1', careful@'127.0.0.1';
"""
NOBODY = {"user": "nobody", "group": "nogroup", "extra_groups": []}  # the server refuses to run as root


@dataclass(frozen=True)
class MariaDB:
    folder: Path
    port: int

    def sql(self, text: str) -> None:
        command = ["mariadb", "--no-defaults", "-S", str(self.folder / "socket"), "-u", "root"]
        subprocess.run(command, input=text, text=True, capture_output=True, check=True)

    def client(self, text: str, *options: str, user: str = "app", password: str = SECRET) -> int:
        """Runs statements over TCP and goes on after errors; the exit code."""
        command = ["mariadb", "--no-defaults", "-h", "127.0.0.1", "-P", str(self.port), "-u", user, "-f", *options, "shop"]
        return subprocess.run(command, input=text, text=True, capture_output=True, env=os.environ | {"MYSQL_PWD": password}).returncode

    def dsn(self, user: str, sslmode: str, password: str = SECRET) -> str:
        return f"mysql://{user}:{password}@127.0.0.1:{self.port}/shop?sslmode={sslmode}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def mariadb() -> Iterator[MariaDB]:
    if not all(map(shutil.which, ("mariadbd", "mariadb-install-db", "mariadb", "openssl"))):
        no_oracle("MariaDB is not installed: apt-get install mariadb-server-core mariadb-client-core")
    with tempfile.TemporaryDirectory(prefix="leadline-mariadb-") as name:
        folder, port = Path(name), _free_port()
        folder.chmod(0o755)
        shutil.chown(folder, "nobody", "nogroup")
        files = [f"--tmpdir={folder}", f"--datadir={folder / 'data'}"]
        key, certificate = str(folder / "key.pem"), str(folder / "cert.pem")
        made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", key, "-out", certificate]
        for command in (made, ["mariadb-install-db", "--no-defaults", "--auth-root-authentication-method=normal", *files]):
            subprocess.run(command, capture_output=True, check=True, cwd=folder, **NOBODY)
        where = [f"--socket={folder / 'socket'}", "--bind-address=127.0.0.1", f"--port={port}", f"--pid-file={folder / 'pid'}"]
        tls = [f"--ssl-cert={certificate}", f"--ssl-key={key}"]
        command = ["mariadbd", "--no-defaults", *files, *where, *tls]
        with open(folder / "log", "wb") as log, subprocess.Popen(command, stderr=log, cwd=folder, **NOBODY) as server:
            try:
                running = MariaDB(folder, port)
                wait_until(lambda: server.poll() is not None or (folder / "socket").exists(), what="MariaDB")
                assert server.poll() is None, (folder / "log").read_text()
                running.sql(USERS)
                yield running
            finally:
                server.terminate()


@pytest.mark.parametrize(("user", "sslmode"), [("app", "disable"), ("app", "prefer"), ("careful", "require")])
def test_each_phase_of_a_connection_is_timed(mariadb: MariaDB, user: str, sslmode: str) -> None:
    text, interrupted = dbping(mysql_server_of(mariadb.dsn(user, sslmode)).login(10.0), "mysql", connects=3, pings=23)
    found = json.loads(text)
    about = found["about"]
    assert not interrupted and (about["method"], about["encrypted"]) == ("mysql_native_password", sslmode != "disable")
    assert "MariaDB" in about["version"]
    phases = {row["phase"]: row for row in found["phases"]}
    assert ("tls" in phases) is (sslmode != "disable")
    assert all(phases[name]["p50_ns"] > 0 for name in ("connect", "greeting", "login", "ping", "execute"))


@pytest.mark.parametrize(("user", "sslmode", "password"), [("app", "prefer", "wrong"), ("careful", "disable", SECRET)])
def test_a_refused_login_says_so_without_the_password(mariadb: MariaDB, user: str, sslmode: str, password: str) -> None:
    server = mysql_server_of(mariadb.dsn(user, sslmode, password))
    with pytest.raises(LeadlineError, match="the exchange with the server failed") as caught:
        dbping(server.login(10.0), "mysql", connects=1, pings=1)
    assert "error 1045" in str(caught.value.detail) and password not in str(caught.value.as_dict())


@pytest.fixture(scope="module")
def packets(mariadb: MariaDB, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Capture]:
    """Four connections: 23 queries; transactions, many rows and an error; one with TLS; one with a wrong password."""
    folder = tmp_path_factory.mktemp("mariadb")
    probe = WireProbe(folder, "lo", [mariadb.port])
    probe.start()
    many = "".join(f"begin; insert into t values ({n}, repeat('x', 9000)); update t set v = 'y' where i = {n}; commit;\n" for n in range(5))
    codes = [
        mariadb.client("".join(f"select {n};\n" for n in range(23)), "--skip-ssl"),
        mariadb.client(f"create table t (i int primary key, v text);\n{many}select seq from seq_1_to_5000;\nselec 1;\n", "--skip-ssl"),
        mariadb.client("select 1; select 2;", "--ssl"),
        mariadb.client("select 1;", "--skip-ssl", password="wrong"),
    ]
    assert codes == [0, 0, 0, 1]
    assert probe.stop()["error"] is None
    making = Making(folder, Target("network", "lo"), {})
    making.manifest.probes["wire"] = ProbeState()
    making.end(None)
    with closing(open_capture(folder)) as capture:
        yield capture


def test_its_messages_are_read(packets: Capture) -> None:
    columns = "protocol, user_name, database_name, auth, tls, let_in, round_trips, transactions, errors, lost_places"
    rows = packets.rows(f"select {columns} from wire_connection order by connection_id")
    assert [tuple(row.values()) for row in rows] == [
        ("mysql", "app", "shop", "mysql_native_password", "not asked", 1, 23, 23, 0, 0),
        # create; five transactions of four statements; one query of many rows; an error
        ("mysql", "app", "shop", "mysql_native_password", "not asked", 1, 23, 8, 1, 0),
        ("mysql", "", "", "unseen", "accepted", None, rows[2]["round_trips"], None, None, 0),
        ("mysql", "app", "shop", "mysql_native_password", "not asked", 0, 0, 0, 0, 0),
    ]
    [biggest] = packets.rows("select max(response_bytes) as bytes from wire_roundtrip where connection_id = 2")
    assert biggest["bytes"] > 5000 * 5  # each row has a header of four bytes


def test_the_password_is_in_no_file(packets: Capture) -> None:
    for path in packets.path.rglob("*.parquet"):
        assert SECRET.encode() not in path.read_bytes()
    assert packets.scalar("select count(*) from wire_connection where password_readable") == 0


def test_a_budget_leaves_out_what_it_cannot_read(packets: Capture) -> None:
    [found] = budgets(packets, [20.0]).budgets
    assert (found.connections, found.unread_connections, found.transactions, found.round_trips) == (2, 1, 31, 46)
    assert found.trips_each.value == pytest.approx(46 / 31)


def seen(mariadb: MariaDB, work: Callable[[], object]) -> dict[str, Any]:
    """The one connection that the work makes."""
    probe = WireProbe(None, "lo", [mariadb.port])
    probe.start()
    work()
    assert probe.stop()["error"] is None
    [connection] = probe.summary()["connections"]
    return dict(connection)


def test_a_compressed_connection_is_read(mariadb: MariaDB) -> None:
    text = "".join(f"select {n}, repeat('x', {n * 1000});\n" for n in range(23))
    found = seen(mariadb, lambda: mariadb.client(text, "--skip-ssl", "--compress"))
    assert (found["statements"], found["transactions"], found["round_trips"], found["lost_places"]) == (23, 23, 23, 0)
    assert found["server_payload_bytes"] < 23 * 22 * 500 / 10  # it was compressed


def log_in_without_a_method(mariadb: MariaDB) -> None:
    """As clients before 5.5: the answer to the challenge, and no name of a method."""
    with socket.create_connection(("127.0.0.1", mariadb.port), 10) as line:
        greeting = line.recv(4096)
        at = greeting.index(b"\0", 5) + 5
        challenge = greeting[at : at + 8] + greeting[at + 27 : at + 39]
        once = hashlib.sha1(SECRET.encode()).digest()
        mask = hashlib.sha1(challenge + hashlib.sha1(once).digest()).digest()
        proof = bytes(a ^ b for a, b in zip(once, mask, strict=True))
        protocol_41_secure_connection = 0x8200
        body = struct.pack("<IIB23x", protocol_41_secure_connection, 1 << 24, 33) + b"app\0" + bytes([len(proof)]) + proof
        line.sendall(struct.pack("<I", len(body) | 1 << 24) + body)
        assert line.recv(4096)[4] == 0
        line.sendall(b"\1\0\0\0\1")


def test_a_login_that_names_no_method_has_a_hash_that_can_be_guessed(mariadb: MariaDB) -> None:
    found = seen(mariadb, lambda: log_in_without_a_method(mariadb))
    assert (found["auth"], auth.verdict(found)) == ("mysql_native_password", auth.WEAK)
