"""Clients of another host, as the kernel sees them: over a way that takes time, loses data, and is open to anybody."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from certificates import certified
from conftest import wait_until
from far_away import FAR, NEAR, PUBLIC_FAR, PUBLIC_NEAR, WINDOW, FarAway, Reader
from leadline.engines.postgres.server import PrivateServer

from matrix.ground import Ground
from matrix.scenario import Expected, Truth, scenario

WAY_S = 0.025


def far_away(g: Ground, way_s: float, near: str = NEAR, far: str = FAR) -> tuple[PrivateServer, FarAway]:
    """A server that lets clients of `far` in. It is captured."""
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists():
        pytest.skip("a way to another host needs root and /dev/net/tun")
    way = g.stack.enter_context(FarAway(way_s, near=near, far=far))
    private = g.stack.enter_context(PrivateServer(g.server.private.bin_dir, loopback=True, address=near))
    with open(private.data_dir / "pg_hba.conf", "a", encoding="utf-8") as rules:
        rules.write(f"host all all {far}/32 trust\n")
    with psycopg.connect(private.dsn) as db:
        db.execute("select pg_reload_conf()")
    g.target = private
    return private, way


@scenario()
def plain_connections_over_a_public_network(g: Ground) -> Iterator[Truth]:
    """Two sessions of a public address have no TLS. Beside them are one of the same address that has it, and one of this host."""
    private, _ = far_away(g, 0.001, PUBLIC_NEAR, PUBLIC_FAR)
    certified(private)
    with psycopg.connect(private.dsn, autocommit=True) as db:
        db.execute("alter system set ssl = on")
        db.execute("select pg_reload_conf()")
        wait_until(lambda: db.execute("show ssl").fetchone() == ("on",), what="TLS")
    remote = private.loopback_dsn.replace("127.0.0.1", PUBLIC_FAR)
    ways = ((remote, "disable"), (remote, "disable"), (remote, "require"), (private.loopback_dsn, "disable"))
    sessions = [psycopg.connect(dsn, sslmode=mode, gssencmode="disable", application_name="web", autocommit=True) for dsn, mode in ways]
    yield lambda: [
        Expected("NONTLS-REMOTE", f"client {PUBLIC_FAR}", None, (f"2 sessions from {PUBLIC_FAR} without TLS",), "medium"),
        Expected("HBA-WEAK", f"rule host all all {PUBLIC_FAR}/32 trust", severity="high"),
    ]
    for session in sessions:
        session.close()


def reads(g: Ground, reader: Reader) -> None:
    """From now on, until the scenario ends."""

    def end() -> None:
        reader.over.set()
        reader.socket.shutdown(socket.SHUT_RDWR)
        reader.join(10)
        reader.socket.close()

    g.stack.callback(end)
    reader.start()


@scenario(window_s=4.0, beside=("HBA-WEAK", "SLOW-CLIENT", "TOP-WAIT"))
def small_window_over_a_long_way(g: Ground) -> Iterator[Truth]:
    """A client 50 ms away has a receive window of 64 kB, and reads as fast as they come. One of this host reads slowly."""
    private, _ = far_away(g, WAY_S)
    reads(g, Reader(FAR, private.port, "far", window=WINDOW // 2))  # the kernel doubles it
    reads(g, Reader("127.0.0.1", private.port, "slow", pause_s=0.05))
    subject = f"receive window of client {FAR} of {NEAR}:{private.port}"
    yield lambda: [Expected("WINDOW-LIMITED", subject, severity="medium")]


@scenario(window_s=4.0, beside=("HBA-WEAK", "SLOW-CLIENT", "TOP-WAIT", "TCP-RETRANSMITS"), never=("WINDOW-LIMITED",))
def data_that_is_lost_on_the_way(g: Ground) -> Iterator[Truth]:
    """One in thirty packets with data for a client gets lost."""
    private, way = far_away(g, WAY_S)
    way.drop = range(100, 1_000_000, 30)
    reads(g, Reader(FAR, private.port, "far"))
    yield lambda: [Expected("RETRANSMITS", f"client {FAR} of {NEAR}:{private.port}", severity="medium")]
