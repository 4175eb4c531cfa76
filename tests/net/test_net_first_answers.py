"""What dbping asks a SQL Server and an Oracle listener, and what our stand-ins answer, as programs of others understand it.

No real server of either can be had from a package registry. A dissector (tshark) reads both sides. Clients that are used with real servers
(FreeTDS in pymssql, python-tds, python-oracledb) take the stand-ins for one: they go on to the login, or say which error the listener
reported.
"""

from __future__ import annotations

import importlib
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle
from leadline.cli import run
from net_servers import Listener, Serve, SqlServer, serving
from packets_made import Packets

TDS_HEADER, TLS_HANDSHAKE = 8, 0x16
PRELOGIN, LOGIN7 = 0x12, 0x10


def client_of(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        no_oracle(f"{package} is not installed: pip install {package}")


class Recorded:
    """A connection that keeps what goes over it, in order: who said it, and what."""

    def __init__(self, connection: socket.socket, said: list[tuple[bool, bytes]]) -> None:
        self.connection, self.said = connection, said

    def recv(self, most: int) -> bytes:
        data = self.connection.recv(most)
        if self.said and self.said[-1][0]:
            self.said[-1] = (True, self.said[-1][1] + data)
        else:
            self.said.append((True, data))
        return data

    def sendall(self, data: bytes) -> None:
        self.said.append((False, data))
        self.connection.sendall(data)


def dissected(serve: Serve, protocol: str, fields: list[str], path: Path) -> list[list[str]]:
    """The fields of each packet with data of one connection of dbping."""
    if shutil.which("tshark") is None:
        no_oracle("tshark is not installed: apt-get install tshark")
    said: list[tuple[bool, bytes]] = []

    def recorded(connection: socket.socket, number: int) -> None:
        serve(Recorded(connection, said), number)  # type: ignore[arg-type]

    with serving(recorded) as port:
        assert run(["net", "dbping", f"127.0.0.1:{port}", "--protocol", protocol, "--connects", "1"]) == 0
    made = Packets(path)
    line = made.line(port=port).handshake()
    for from_client, data in said:
        (line.client if from_client else line.server)(data)
    dissector = {"oracle": "tns"}.get(protocol, protocol)
    command = ["tshark", "-n", "-r", made.write(), "-d", f"tcp.port=={port},{dissector}", "-Y", dissector]
    command += ["-T", "fields", "-E", "separator=;"]
    for field in [*fields, "_ws.malformed"]:
        command += ["-e", field]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [row.split(";") for row in text.splitlines()]


def by_freetds(port: int) -> None:
    client_of("pymssql", "pymssql").connect(server="127.0.0.1", port=str(port), user="app", password="secret", login_timeout=5)


def by_python_tds(port: int) -> None:
    client_of("pytds", "python-tds").connect("127.0.0.1", port=port, user="app", password="secret", login_timeout=5)


def by_oracledb(port: int) -> None:
    client_of("oracledb", "oracledb").connect(user="app", password="secret", dsn=f"127.0.0.1:{port}/shop", tcp_connect_timeout=5)


@pytest.mark.parametrize("client", [by_freetds, by_python_tds])
def test_clients_of_sql_server_go_on_to_the_login(client: Callable[[int], None]) -> None:
    server = SqlServer(SqlServer.NOT_SUPPORTED)
    with serving(server) as port, pytest.raises(Exception, match="Login failed for user 'app'"):
        client(port)
    prelogin, login = server.heard[:2]
    assert (prelogin[0], login[0]) == (PRELOGIN, LOGIN7)
    assert "app".encode("utf-16le") in login


def test_a_client_of_sql_server_begins_tls_for_the_login() -> None:
    server = SqlServer(SqlServer.OF_THE_LOGIN)
    with serving(server) as port, pytest.raises(Exception, match="connection failed"):
        by_freetds(port)
    assert (server.heard[1][0], server.heard[1][TDS_HEADER]) == (PRELOGIN, TLS_HANDSHAKE)


def test_a_client_of_oracle_sends_again_and_knows_the_error() -> None:
    server = Listener(12514)
    with serving(server) as port, pytest.raises(Exception, match="DPY-6001"):  # the service is not registered with the listener
        by_oracledb(port)
    assert len(server.heard) == 2 and b"(SERVICE_NAME=shop)" in server.heard[0]
    assert server.heard[0] == server.heard[1]


def test_a_dissector_reads_prelogin_and_its_answer(tmp_path: Path) -> None:
    fields = ["tds.type", "tds.length", "tds.prelogin.option.version", "tds.prelogin.option.encryption"]
    asked, answered = dissected(SqlServer(), "tds", fields, tmp_path / "tds.pcap")
    assert asked == ["18", "26", "0", str(SqlServer.NOT_SUPPORTED), ""]
    assert answered == ["4", "26", str(0x10_00_1009), str(SqlServer.OF_THE_LOGIN), ""]  # 16.0.4105


def test_a_dissector_reads_the_ping_of_a_listener(tmp_path: Path) -> None:
    fields = ["tns.type", "tns.version", "tns.connect_data", "tns.refuse_data_length", "tns.refuse_data"]
    rows = dissected(Listener(), "oracle", fields, tmp_path / "tns.pcap")
    asked = ["1", "310", "(CONNECT_DATA=(COMMAND=ping))", "", "", ""]
    refused = ["4", "", "", "61", "(DESCRIPTION=(TMP=)(VSNNUM=318767104)(ERR=0)(ALIAS=LISTENER))", ""]
    assert rows == [asked, ["11", "", "", "", "", ""], asked, refused]
