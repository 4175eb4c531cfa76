"""What only packets show. The captures also record those of the server's port."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from leadline.engines.postgres.server import PrivateServer
from logins import METHODS, SECRET, make_users

from matrix.ground import Ground
from matrix.scenario import Expected, Truth, scenario
from matrix.steps import outsiders


@scenario(window_s=5.0, beside=("CONN-STORM", "HBA-WEAK"))
def logins_that_anybody_can_read(g: Ground) -> Iterator[Truth]:
    """Clients log in twenty times a second: one with its password as it is, one with MD5, one with SCRAM. None uses TLS."""
    if os.geteuid() != 0:
        pytest.skip("capturing packets needs root")
    g.options["probes"] = ["sessions", "host", "wire"]
    private = g.stack.enter_context(PrivateServer(g.server.private.bin_dir, loopback=True))
    g.target = private
    make_users(private)

    def log_in(db: psycopg.Connection[Any], stop: threading.Event) -> None:
        dsn = private.loopback_dsn.replace("user=postgres", f"user={db.info.parameter_status('application_name')}")
        psycopg.connect(dsn, password=SECRET, gssencmode="disable", sslmode="disable").close()
        stop.wait(0.05)

    outsiders(g, private.dsn, log_in, list(METHODS))
    server = f"127.0.0.1:{private.port}"
    yield lambda: [
        Expected("WIRE-CLEARTEXT", f"user plain at {server}", severity="critical"),
        Expected("WIRE-MD5", f"user hashed at {server}"),
        Expected("CONNECT-COST", f"client 127.0.0.1, user plain at {server}"),
    ]
