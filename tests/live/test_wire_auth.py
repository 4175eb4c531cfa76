"""Logins with TLS and after refused GSSAPI, by the packets of a real server; and what encrypting costs a login."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from certificates import certified
from conftest import fetched_or_skip, wait_until
from leadline.cli import run
from leadline.engines.postgres.server.private import PrivateServer
from leadline.net import auth
from leadline.probes.wire import WireProbe
from live import wire_connections
from packets_made import GSS_REQUEST, message, receive, startup

SECRET = "swordfish-0815"
METHODS = {"plain": "password", "scrammed": "scram-sha-256"}
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="capturing packets needs root")
pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with PrivateServer(fetched_or_skip(16).bin_dir, loopback=True) as private:
        certified(private)
        with psycopg.connect(private.dsn, autocommit=True) as db:
            for role in METHODS:
                db.execute(f"create role {role} login superuser password '{SECRET}'")
            rules = private.data_dir / "pg_hba.conf"
            lines = [f"host all {role} 127.0.0.1/32 {method}" for role, method in METHODS.items()]
            rules.write_text("\n".join(lines) + "\n" + rules.read_text())
            db.execute("alter system set ssl = on")
            db.execute("select pg_reload_conf()")
            wait_until(lambda: db.execute("show ssl").fetchone() == ("on",))
        yield private


def log_in(server: PrivateServer, user: str, sslmode: str) -> None:
    psycopg.connect(
        host="127.0.0.1", port=server.port, user=user, password=SECRET, dbname="postgres", gssencmode="disable", sslmode=sslmode
    ).close()


def after_refused_gss(server: PrivateServer) -> None:
    """As libpq with gssencmode=prefer and a ticket: the test's own libpq may know no GSSAPI."""
    with socket.create_connection(("127.0.0.1", server.port), 10) as line:
        line.sendall(GSS_REQUEST)
        assert line.recv(1) == b"N"
        line.sendall(startup("plain", "postgres"))
        receive(line, struct.pack("!cII", b"R", 8, 3))
        line.sendall(message("p", SECRET.encode() + b"\0"))
        receive(line, message("Z", b"I"))
        line.sendall(message("X"))


@needs_root
def test_tls_hides_the_login_and_refused_gss_leaves_the_password_readable(server: PrivateServer, tmp_path: Path) -> None:
    probe = WireProbe(tmp_path, "lo", [server.port])
    probe.start()
    log_in(server, "plain", "require")
    log_in(server, "scrammed", "require")
    log_in(server, "plain", "disable")
    log_in(server, "scrammed", "disable")
    after_refused_gss(server)
    assert probe.stop()["error"] is None
    ways = auth.logins(wire_connections(tmp_path))
    assert {(w.verdict, w.tls, w.gss, w.user, w.auth, w.let_in, w.connections) for w in ways} == {
        (auth.ENCRYPTED, "accepted", "not asked", "", "unseen", None, 2),
        (auth.READABLE, "not asked", "not asked", "plain", "cleartext", True, 1),
        (auth.READABLE, "not asked", "refused", "plain", "cleartext", True, 1),
        (auth.SAFE, "not asked", "not asked", "scrammed", "scram-sha-256", True, 1),
    }
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert files and [file for file in files if SECRET.encode() in file.read_bytes()] == []


@needs_root
def test_tls_that_is_refused_is_told_from_packets(server: PrivateServer) -> None:
    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("alter system set ssl = off")
        db.execute("select pg_reload_conf()")
        wait_until(lambda: db.execute("show ssl").fetchone() == ("off",))
        try:
            probe = WireProbe(None, "lo", [server.port])
            probe.start()
            log_in(server, "scrammed", "prefer")
            assert probe.stop()["error"] is None
        finally:
            db.execute("alter system set ssl = on")
            db.execute("select pg_reload_conf()")
            wait_until(lambda: db.execute("show ssl").fetchone() == ("on",))
    [way] = auth.logins(probe.summary()["connections"])
    assert (way.verdict, way.tls, way.auth) == (auth.SAFE, "refused", "scram-sha-256")


def test_the_rules_that_allow_weak_logins_are_named(
    server: PrivateServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", SECRET)
    dsn = f"host=127.0.0.1 port={server.port} user=scrammed dbname=postgres"
    assert run(["net", "auth", dsn, "--json"]) == 0
    rules = json.loads(capsys.readouterr().out)["rules"]
    assert ("host", "plain", "password", auth.READABLE) in {(r["type"], r["user_name"], r["auth_method"], r["verdict"]) for r in rules}
    assert "scrammed" not in {r["user_name"] for r in rules}
    assert run(["net", "auth", dsn]) == 0
    text = capsys.readouterr().out
    assert "rules of pg_hba.conf that allow it" in text and "127.0.0.1" in text and SECRET not in text


def test_the_cost_of_tls_is_measured_by_logins(
    server: PrivateServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", SECRET)
    dsn = f"host=127.0.0.1 port={server.port} user=scrammed dbname=postgres"
    assert run(["net", "auth", dsn, "--cost", "6", "--json"]) == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    assert cost["method"] == "scram-sha-256"
    for way in ("plain", "tls"):
        assert cost[way]["logins"] == 6 and 0 < cost[way]["low_ms"] <= cost[way]["median_ms"] <= cost[way]["high_ms"]
    assert cost["ratio"]["pairs"] == 6 and cost["ratio"]["low"] <= cost["ratio"]["estimate"] <= cost["ratio"]["high"]
    assert run(["net", "auth", dsn, "--cost", "2", "--json"]) == 0
    few = json.loads(capsys.readouterr().out)["cost"]
    assert few["tls"]["median_ms"] > 0 and {few[way][end] for way in ("plain", "tls") for end in ("low_ms", "high_ms")} == {None}
    assert run(["net", "auth", dsn, "--cost", "2"]) == 0
    text = capsys.readouterr().out
    assert "with TLS" in text and "times as long" in text
    assert run(["net", "auth", f"host={server.socket_dir} port={server.port} user=postgres dbname=postgres", "--cost", "2"]) == 2
    assert "TLS" in capsys.readouterr().err
