"""Servers that cannot start, and limits that a control group or a setting of the kernel sets: the cause is found, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle
from host_changes import control_group, kernel_setting
from servers import Unavailable, server

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="other users and control groups need root")
USER = "setpriv --reuid=nobody --regid=nogroup --clear-groups"  # a server wants one that has a name
WHY = [sys.executable, "-m", "leadline", "why", "--json", "--linger", "0.2", "--"]


def why(*command: str, cwd: Path | None = None) -> dict[str, Any]:
    env = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run([*WHY, *command], cwd=cwd, env=env, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert '{"explained"' in done.stdout, done.stderr
    return dict(json.loads(done.stdout[done.stdout.index('{"explained"') :]), code=done.returncode, stderr=done.stderr)


def best(told: dict[str, Any]) -> dict[str, Any]:
    assert told["code"] == 1 and told["causes"], told
    return dict(told["causes"][0])


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """One that other users may enter."""
    made = Path("/var/tmp") / f"leadline-why-servers-{os.getpid()}"
    made.mkdir()
    made.chmod(0o777)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def postgres(folder: Path) -> tuple[str, Path]:
    """Programs of a server, and a data directory that the user of USER owns."""
    try:
        found = server(16)
    except Unavailable as e:
        no_oracle(str(e))
    words = [*USER.split(), f"{found.bin_dir}/initdb", "-D", str(folder / "data"), "-U", "planted", "--no-sync", "-A", "trust"]
    subprocess.run(words, check=True, capture_output=True)
    return found.bin_dir, folder / "data"


def started(postgres: tuple[str, Path], *settings: str) -> dict[str, Any]:
    """A server with these settings; one that would start ends after a second, by the signal of timeout."""
    bin_dir, data = postgres
    listens = ["-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={data.parent}"]
    words = [f"{bin_dir}/postgres", "-D", str(data), *listens, *(word for setting in settings for word in ("-c", setting))]
    return why(*USER.split(), *words)


@needs_root
def test_a_server_whose_port_is_taken(postgres: tuple[str, Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        cause = best(started(postgres, f"port={port}"))
        assert (cause["kind"], cause["address"]) == ("address_in_use", f"127.0.0.1:{port}"), cause
        assert f"(pid {os.getpid()}) listens there" in cause["statement"]
        # Through pg_ctl, whose log has the reason.
        bin_dir, data = postgres
        options = f"-p{port} -c listen_addresses=127.0.0.1 -c unix_socket_directories={data.parent}"
        cause = best(why(*USER.split(), f"{bin_dir}/pg_ctl", "-D", str(data), "-l", f"{data.parent}/log", "-w", "start", "-o", options))
    assert (cause["kind"], cause["address"]) == ("address_in_use", f"127.0.0.1:{port}"), cause


@needs_root
def test_a_server_whose_socket_folder_is_missing_or_closed(postgres: tuple[str, Path], folder: Path) -> None:
    cause = best(started(postgres, "unix_socket_directories=/no/such/planted", "port=54099"))
    assert cause["kind"] == "file_not_found" and "/no/such/planted" in cause["statement"] + str(cause["evidence"]), cause
    closed = folder / "closed"
    closed.mkdir(mode=0o755)
    cause = best(started(postgres, f"unix_socket_directories={closed}", "port=54099"))
    assert cause["kind"] == "permission" and f"may not make anything in {closed}" in cause["statement"], cause


@needs_root
def test_a_server_that_wants_huge_pages(postgres: tuple[str, Path]) -> None:
    if Path("/proc/sys/vm/nr_hugepages").read_text().strip() != "0":
        pytest.skip("the kernel of this host has huge pages")
    cause = best(started(postgres, "huge_pages=on", "port=54099"))
    assert cause["kind"] == "huge_pages" and cause["fix"].startswith("sysctl vm.nr_hugepages="), cause
    # With huge_pages=try the same call fails, and the server goes on: it fails for another reason.
    told = started(postgres, "huge_pages=try", "shared_preload_libraries=planted_nosuch", "port=54099")
    assert best(told)["kind"] in ("file_not_found", "reported") and "planted_nosuch" in best(told)["statement"], told
    assert not {"memory", "huge_pages"} & {cause["kind"] for cause in told["causes"]}, told


@needs_root
def test_a_data_directory_that_a_server_refuses(postgres: tuple[str, Path]) -> None:
    bin_dir, data = postgres
    data.chmod(0o755)
    try:
        cause = best(started(postgres, "port=54099"))
    finally:
        data.chmod(0o700)
    assert (cause["kind"], cause["fix"]) == ("data_directory_mode", f"chmod 700 {data}"), cause
    assert (
        best(why("setpriv", "--reuid=65532", "--regid=65534", "--clear-groups", f"{bin_dir}/initdb", "-D", f"{data}2"))["kind"]
        == "unknown_user"
    )
    cause = best(why("setpriv", "--reuid=65532", "--regid=65534", "--clear-groups", f"{bin_dir}/postgres", "-D", str(data)))
    assert cause["kind"] == "permission" and cause["statement"].startswith(f"User 65532 may not enter {data}"), cause
    cause = best(why(*USER.split(), f"{bin_dir}/postgres", "-D", f"{data}-nosuch"))
    assert "data-nosuch" in cause["statement"], cause


@needs_root
def test_programs_of_a_server_that_root_starts(postgres: tuple[str, Path], folder: Path) -> None:
    bin_dir, data = postgres
    for words in (["initdb", "-D", str(folder / "new")], ["postgres", "-D", str(data)], ["pg_ctl", "-D", str(data), "start"]):
        cause = best(why(f"{bin_dir}/{words[0]}", *words[1:]))
        assert cause["kind"] == "as_root" and cause["statement"].startswith(words[0]), cause


@needs_root
def test_a_server_whose_folder_another_one_uses(postgres: tuple[str, Path]) -> None:
    _, data = postgres
    holder = subprocess.Popen([*USER.split(), "sleep", "60"])
    try:
        lines = f"{holder.pid}\n{data}\n1\n54098\n\n127.0.0.1\n"
        subprocess.run([*USER.split(), "sh", "-c", f"cat > {data}/postmaster.pid"], input=lines, text=True, check=True)
        cause = best(started(postgres, "port=54099"))
    finally:
        holder.kill()
        holder.wait()
        (data / "postmaster.pid").unlink()
    assert cause["kind"] == "held_lock" and "postmaster.pid" in cause["statement"], cause


@needs_root
def test_a_server_with_a_wrong_setting(postgres: tuple[str, Path]) -> None:
    for setting, said in (
        ("planted_nosuch=1", "planted_nosuch"),
        ("max_connections=-1", "max_connections"),
        ("shared_buffers=lots", "shared_buffers"),
    ):
        cause = best(started(postgres, setting))
        assert cause["kind"] == "reported" and said in cause["statement"], cause


@needs_root
def test_a_control_group_without_memory(folder: Path) -> None:
    fills = "import os, sys; open(sys.argv[1], 'w').write(str(os.getpid())); p = sys.executable; "
    fills += "os.execv(p, [p, '-c', 'x = bytearray(300 << 20)'])"
    with control_group("memory", "30000000", "memory.limit_in_bytes", "memory.max") as group:
        told = why("sh", "-c", f'{sys.executable} -c "{fills}" {group}/cgroup.procs; exit 3')
    cause = best(told)
    assert cause["kind"] == "out_of_memory" and f"the control group {group} had used all of its" in cause["statement"], told
    told = why("sh", "-c", "sleep 50 & kill -9 $!; wait $!")
    assert not any(cause["kind"] == "out_of_memory" for cause in told["causes"]), told


@needs_root
def test_a_file_of_another_user_in_a_sticky_folder(folder: Path) -> None:
    sticky = folder / "sticky"
    sticky.mkdir()
    sticky.chmod(0o1777)
    subprocess.run([*USER.split(), "touch", str(sticky / "file")], check=True)
    (sticky / "file").chmod(0o666)
    with kernel_setting("/proc/sys/fs/protected_regular", "1"):
        told = why("sh", "-c", f"echo x > {sticky}/file")
        kind, statement = best(told)["kind"], best(told)["statement"]
        assert (kind, "fs.protected_regular" in statement) == ("protected_file", True), told
    told = why("sh", "-c", f"echo x > {sticky}/file")
    assert told["causes"] == [], told


@needs_root
def test_limits_of_a_user(folder: Path) -> None:
    (folder / "fork.c").write_text(
        '#include <stdio.h>\n#include <unistd.h>\nint main(void) { if (fork() < 0) { perror("fork"); return 1; } return 0; }\n'
    )
    subprocess.run(["cc", "-o", "fork", "fork.c"], cwd=folder, check=True)
    cause = best(why(*USER.split(), "bash", "-c", "ulimit -u 1; exec ./fork", cwd=folder))
    assert cause["kind"] == "processes" and cause["fix"].startswith("ulimit -u"), cause


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("openssl") is None or shutil.which("curl") is None:
        no_oracle("openssl or curl is not installed")
    made = tmp_path_factory.mktemp("tls")
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-keyout",
        "k.pem",
        "-out",
        "c.pem",
        "-days",
        "9",
        "-subj",
        "/CN=planted",
    ]
    subprocess.run(words, cwd=made, check=True, capture_output=True)
    return made


@pytest.mark.parametrize(
    ("client", "kind"),
    [("curl -sS https://127.0.0.1:{port}/", "certificate"),
     ("curl -sS --cacert {folder}/c.pem https://127.0.0.1:{port}/", "certificate"),
     ("{python} -c 'import urllib.request as r; r.urlopen(\"https://127.0.0.1:{port}/\")'", "certificate"),
     ("wget -nv -O - https://127.0.0.1:{port}/", "certificate")],
)  # fmt: skip
def test_certificates_that_clients_refuse(client: str, kind: str, certificates: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "c.pem", certificates / "k.pem")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=_answers, args=(listener, context), daemon=True)
        thread.start()
        line = client.format(port=listener.getsockname()[1], folder=certificates, python=sys.executable)
        told = why("bash", "-c", line)
    assert best(told)["kind"] == kind, told


def _answers(listener: socket.socket, context: ssl.SSLContext | None) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        try:
            if context is None:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            else:
                context.wrap_socket(connection, server_side=True).recv(1)
        except OSError:
            pass
        finally:
            connection.close()


def test_tls_to_a_server_that_does_not_speak_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_answers, args=(listener, None), daemon=True).start()
        told = why("curl", "-sS", f"https://127.0.0.1:{listener.getsockname()[1]}/")
    assert best(told)["kind"] == "tls", told


def test_a_process_that_another_one_ends() -> None:
    told = why("sh", "-c", "kill -TERM $$")
    assert best(told)["kind"] == "signal", told
    assert told["command"]["signal"] == signal.SIGTERM
