"""`net connect`: failures counted and grouped against servers whose failures are known; passwords go nowhere."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import psycopg
import pytest
from conftest import fetched_or_skip, no_oracle, wait_until
from leadline.cli import run
from leadline.engines.postgres.server.private import PrivateServer
from leadline.errors import LeadlineError
from leadline.net.login import server_of
from net_servers import READY, WELCOME, error, message, serving, start_of_session, until_closed

SECRET = "Tr0ub4dor-and-3"


def connect(*words: str) -> tuple[int, dict]:
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(out):
        outcome = run(["net", "connect", *words, "--json"])
    assert SECRET not in out.getvalue()
    return outcome, json.loads(out.getvalue())


def dsn(port: int) -> str:
    return f"host=127.0.0.1 port={port} user=app dbname=shop"


def every_hundredth(connection: socket.socket, number: int) -> None:
    start_of_session(connection)
    if number % 100 == 0:
        connection.sendall(error("53300", "sorry, too many clients already"))
    elif number % 150 == 0:
        return  # closes without a word
    else:
        connection.sendall(WELCOME)
        until_closed(connection)


def test_one_failure_in_a_hundred_is_found_grouped_and_bounded() -> None:
    with serving(every_hundredth) as port:
        outcome, told = connect(dsn(port), "--logins", "400")
    assert outcome == 1
    assert (told["logins"], told["failures"], told["ended"]) == (400, 5, "all planned logins were made")
    causes = [(c["phase"], c["cause"], c["first"], c["count"]) for c in told["causes"]]
    assert causes == [("authenticate", "53300", 100, 4), ("authenticate", "closed", 150, 1)]
    low, high = told["interval"]
    assert low < 5 / 400 < high and not told["below_max_rate"]
    assert told["times"]["login_ns"]["count"] == 395


def test_until_failure_ends_at_the_first() -> None:
    with serving(every_hundredth) as port:
        outcome, told = connect(dsn(port), "--until-failure")
    assert (outcome, told["logins"], told["failures"], told["ended"]) == (1, 100, 1, "a login failed")


def test_299_clean_logins_rule_one_percent_out() -> None:
    def fine(connection: socket.socket, _: int) -> None:
        start_of_session(connection)
        connection.sendall(WELCOME)
        until_closed(connection)

    with serving(fine) as port:
        outcome, told = connect(dsn(port))
        assert (outcome, told["logins"], told["failures"], told["below_max_rate"]) == (0, 299, 0, True)
        outcome, told = connect(dsn(port), "--logins", "298")
        assert (outcome, told["below_max_rate"]) == (0, False)


def test_a_wrong_password_is_not_tried_hundreds_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def refuse(connection: socket.socket, _: int) -> None:
        start_of_session(connection)
        connection.sendall(message(b"R", b"\0\0\0\3"))
        seen.append(connection.recv(100))
        connection.sendall(error("28P01", 'password authentication failed for user "app"'))

    monkeypatch.setenv("PGPASSWORD", SECRET)
    with serving(refuse) as port:
        outcome, told = connect(dsn(port))
    assert (outcome, told["logins"]) == (1, 5)
    assert told["causes"][0]["cause"] == "28P01"
    assert seen[0] == message(b"p", SECRET.encode() + b"\0")


def test_what_is_no_postgres_is_one_cause() -> None:
    def garbage(connection: socket.socket, _: int) -> None:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)
        until_closed(connection)

    def endless(connection: socket.socket, _: int) -> None:
        start_of_session(connection)
        while True:
            connection.sendall(message(b"N", b"SNOTICE\0\0") * 100)

    def silent(connection: socket.socket, _: int) -> None:
        until_closed(connection)

    def long(connection: socket.socket, _: int) -> None:
        start_of_session(connection)
        connection.sendall(b"R\x7f\xff\xff\xff" + READY)
        until_closed(connection)

    for serve, phase, cause in (
        (garbage, "tls", "protocol"),
        (endless, "authenticate", "timeout"),
        (silent, "tls", "timeout"),
        (long, "authenticate", "protocol"),
    ):
        with serving(serve) as port:
            _, told = connect(dsn(port), "--logins", "2", "--timeout", "200ms")
        assert [(c["phase"], c["cause"], c["count"]) for c in told["causes"]] == [(phase, cause, 2)]


# -- real servers ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tcp() -> Iterator[PrivateServer]:
    """A server that listens on 127.0.0.1 too."""
    with PrivateServer(fetched_or_skip(17).bin_dir, settings={"fsync": False}, loopback=True) as server:
        yield server


@pytest.mark.live
@pytest.mark.parametrize("method", ["password", "md5", "scram-sha-256"])
def test_every_method_of_a_password(method: str, tcp: PrivateServer, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = Path(tcp.data_dir) / "pg_hba.conf"
    rest = [line for line in rules.read_text().splitlines() if " app " not in line]
    rules.write_text("\n".join([f"host all app all {method}", *rest, ""]))
    with psycopg.connect(tcp.dsn, autocommit=True) as connection:
        connection.execute(f"set password_encryption = '{'md5' if method == 'md5' else 'scram-sha-256'}'")
        connection.execute("drop role if exists app")
        connection.execute(f"create role app login password '{SECRET}'")
        connection.execute("select pg_reload_conf()")
    where = f"host=127.0.0.1 port={tcp.port} user=app dbname=postgres"
    monkeypatch.setenv("PGPASSWORD", SECRET)
    # The postmaster reads its rules when it handles the signal.
    wait_until(lambda: connect(where, "--logins", "1")[1]["method"] == method, what=method)
    outcome, told = connect(where, "--logins", "3")
    assert (outcome, told["method"], told["failures"], told["encrypted"]) == (0, method, 0, False)
    outcome, told = connect(where + " password=wrong", "--logins", "1")
    assert (outcome, [c["cause"] for c in told["causes"]]) == (1, ["28P01"])
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.setenv("PGPASSFILE", "/nonexistent")
    outcome, told = connect(where, "--logins", "1")
    assert (outcome, [c["cause"] for c in told["causes"]]) == (1, ["password"])


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority and a certificate of it for localhost: ca.crt, server.crt, server.key."""
    if shutil.which("openssl") is None:
        no_oracle("openssl, which makes certificates, is not installed")
    folder = tmp_path_factory.mktemp("certificates")
    new = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30"]
    authority = ["req", "-x509", *new, "-subj", "/CN=test", "-keyout", "ca.key", "-out", "ca.crt"]
    request = ["req", *new, "-subj", "/CN=localhost", "-keyout", "server.key", "-out", "server.csr"]
    (folder / "names").write_text("subjectAltName=DNS:localhost\n")
    signed = ["x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "names"]
    for words in (authority, request, [*signed, "-days", "30", "-out", "server.crt"]):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)
    return folder


@pytest.mark.live
def test_tls_is_used_and_certificates_are_checked_when_asked_for(certificates: Path, tcp: PrivateServer) -> None:
    data = Path(tcp.data_dir)
    owner = data.stat()
    for name in ("server.crt", "server.key"):
        shutil.copy(certificates / name, data)
        os.chown(data / name, owner.st_uid, owner.st_gid)
        (data / name).chmod(0o600)
    with psycopg.connect(tcp.dsn, autocommit=True) as connection:
        connection.execute("alter system set ssl = on")
        connection.execute("select pg_reload_conf()")
    plain = tcp.loopback_dsn
    wait_until(lambda: connect(plain, "--logins", "1")[1]["encrypted"], what="TLS")
    root = f"sslrootcert={certificates}/ca.crt"
    for more in ("sslmode=require", f"sslmode=verify-ca {root}", f"host=localhost sslmode=verify-full {root}"):
        outcome, told = connect(f"{plain} {more}", "--logins", "3")
        assert (outcome, told["encrypted"], told["times"]["tls_ns"]["count"]) == (0, True, 3), more
    outcome, told = connect(f"{plain} sslmode=disable", "--logins", "3")
    assert (outcome, told["encrypted"]) == (0, False)
    # Another authority; a certificate for another name.
    for more in (f"sslmode=verify-ca sslrootcert={certificates}/server.crt", f"sslmode=verify-full {root}"):
        outcome, told = connect(f"{plain} {more}", "--logins", "1")
        assert (outcome, [(c["phase"], c["cause"]) for c in told["causes"]]) == (1, [("tls", "tls")]), more
    # The load client goes on with the connection that was made: values longer than a record of TLS and than the socket takes at once.
    script = Path(certificates) / "long.sql"
    script.write_text(
        "select repeat('x', 900000) as long \\gset\nselect length(:long::text) as n \\gset\n\\if :n <> 900000\nselect 1 / 0;\n\\endif\n"
    )
    for more, encrypted in (("sslmode=require", True), (f"host=localhost sslmode=verify-full {root}", True), ("sslmode=disable", False)):
        with redirect_stdout(io.StringIO()) as out:
            words = ["load", "run", f"{plain} {more}", "-f", str(script), "-M", "extended", "-c", "4", "-j", "2", "-t", "20", "--json"]
            assert run(words) == 0, more
        found = json.loads(out.getvalue())
        assert (found["phases"][0]["done"], found["phases"][0]["failed"]) == (80, 0)
        assert (found["tls"] or "").startswith("TLSv1.3 TLS13_") is encrypted, found["tls"]


# -- passwords ---------------------------------------------------------------------------------------------------------


def test_the_password_file_is_read_as_libpq_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pgpass"
    file.write_text("# db01:*:*:*:no\ndb02:*:*:*:other\ndb01:5433:*:app:port\n*:5432:sh\\:op:app:a\\:b\\\\c\nlocalhost:*:*:*:unix\n")
    file.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(file))
    monkeypatch.delenv("PGPASSWORD", raising=False)
    assert server_of("host=db01 user=app dbname=sh:op").password == "a:b\\c"
    assert server_of("host=db01 port=5433 user=app").password == "port"
    assert server_of("host=/run/nowhere user=x").password == "unix"
    assert server_of("host=db01 user=app dbname=sh:op password=given").password == "given"
    assert server_of("host=db03 user=x").password is None
    file.chmod(0o640)
    assert server_of("host=db01 port=5433 user=app").password is None


def test_a_service_is_read_as_libpq_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "services"
    file.write_text("# x\n[other]\nhost=no\n[shop]\nhost=db01\nport=5433\nport=9\n # y\nuser=app\nsslmode=require\n\n[shop]\nhost=late\n")
    monkeypatch.setenv("PGSERVICEFILE", str(file))
    monkeypatch.setenv("PGPORT", "7777")  # what a service sets comes before the environment
    server = server_of("service=shop dbname=x")
    assert (server.host, server.port, server.user, server.database, server.sslmode) == ("db01", 5433, "app", "x", "require")
    assert server_of("service=shop host=db02").host == "db02"
    monkeypatch.setenv("PGSERVICE", "shop")
    assert server_of("dbname=x").host == "db01"
    for name, text in (("none", ""), ("bad", "[bad]\nhost db01\n"), ("ring", "[ring]\nservice=ring\n")):
        file.write_text(text)
        with pytest.raises(LeadlineError) as raised:
            server_of(f"service={name}")
        assert raised.value.kind == "usage"
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "nowhere"))
    with pytest.raises(LeadlineError, match="service file"):
        server_of("service=shop")


def test_no_form_of_a_login_shows_its_password() -> None:
    server = server_of(f"host=db01 user=app password={SECRET}")
    assert SECRET not in f"{server} {server!r} {server.login(1.0)!r}"


def test_what_our_client_cannot_do_is_refused_before_it_connects(capsys: pytest.CaptureFixture[str]) -> None:
    for given in ("service=prod", "host=a,b", "host=a sslcert=/x", "host=a sslmode=verify-full sslrootcert=/nowhere"):
        with pytest.raises(LeadlineError) as raised:
            server_of(given)
        assert raised.value.kind == "usage"
    assert run(["net", "connect", f"postgresql://app:{SECRET}@[bad"]) == 2
    assert SECRET not in capsys.readouterr().err


def test_logins_at_a_time_are_as_many_as_planned_and_as_many_at_once() -> None:
    """The server lets nobody in before four wait: with fewer at a time none would succeed."""
    four = threading.Barrier(4)

    def together(connection: socket.socket, _: int) -> None:
        start_of_session(connection)
        four.wait(10)
        connection.sendall(WELCOME)
        until_closed(connection)

    with serving(together) as port:
        outcome, told = connect(dsn(port), "--logins", "40", "--parallel", "4")
    assert outcome == 0
    assert (told["logins"], told["failures"], told["parallel"], told["ended"]) == (40, 0, 4, "all planned logins were made")
    assert told["times"]["login_ns"]["count"] == 40 and told["per_second"] == pytest.approx(40 / told["seconds"])


def test_failures_of_logins_at_a_time_end_it_and_all_that_were_made_count() -> None:
    made = []

    def refuses(connection: socket.socket, number: int) -> None:
        made.append(number)
        start_of_session(connection)
        connection.sendall(error("53300", "sorry, too many clients already"))

    with serving(refuses) as port:
        outcome, told = connect(dsn(port), "--logins", "1000", "--parallel", "3", "--until-failure")
    assert (outcome, told["ended"]) == (1, "a login failed")
    assert told["logins"] == told["failures"] == len(made) < 1000


def test_a_pause_lies_between_logins() -> None:
    began = []

    def welcomes(connection: socket.socket, _: int) -> None:
        began.append(time.monotonic())
        start_of_session(connection)
        connection.sendall(WELCOME)
        until_closed(connection)

    with serving(welcomes) as port:
        outcome, told = connect(dsn(port), "--logins", "4", "--pause", "50ms")
    assert (outcome, told["pause_s"]) == (0, 0.05)
    assert min(later - earlier for earlier, later in itertools.pairwise(began)) >= 0.05
