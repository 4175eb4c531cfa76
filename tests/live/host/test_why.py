"""Commands with a planted cause are explained, and of commands that work nothing is claimed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from conftest import no_oracle
from host_changes import control_group

ROOT = os.geteuid() == 0
needs_root = pytest.mark.skipif(not ROOT, reason="mounts and other users need root")
WHY = [sys.executable, "-m", "leadline", "why"]


@dataclass
class Told:
    code: int
    ended: dict[str, Any]
    causes: list[dict[str, Any]]
    failed: list[dict[str, Any]]
    stderr: str

    @property
    def best(self) -> dict[str, Any]:
        assert self.causes, self
        return self.causes[0]


def why(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None, by: tuple[str, ...] = ()) -> Told:
    """by: what starts leadline."""
    words = [*by, *WHY, "--json", "--linger", "10", "--", *command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=cwd, env={**os.environ, **(env or {})}, input="")
    assert done.returncode in (0, 1, 3), done.stderr
    told = json.loads(done.stdout[done.stdout.index('{"explained"') :])
    return Told(done.returncode, told["command"], told["causes"], told["failed_processes"], done.stderr)


def nothing_claimed(*command: str, by: tuple[str, ...] = ()) -> bool:
    """A neighbour of a planted cause, which works."""
    told = why(*command, by=by)
    assert (told.code, told.ended["exit_code"], told.causes) == (0, 0, []), told
    return True


def script(path: Path, text: str) -> str:
    path.write_text(textwrap.dedent(text).lstrip())
    path.chmod(0o755)
    return str(path)


def compiled(path: Path, text: str, *options: str) -> str:
    source = path.with_suffix(".c")
    source.write_text(text)
    subprocess.run(["cc", "-o", str(path), str(source), *options], check=True)
    return str(path)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Any]:
    points: list[Path] = []

    def mount(options: str) -> Path:
        points.append(tmp_path / f"mount {len(points)}")
        points[-1].mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(points[-1])], capture_output=True, text=True)
        if done.returncode:
            points.pop()
            pytest.skip(f"tmpfs cannot be mounted: {done.stderr}")
        return points[-1]

    yield mount
    for point in points:
        subprocess.run(["umount", str(point)], check=True)


# -- planted causes ----------------------------------------------------------------------------------------------------

INSTALLER = """
    #!/bin/sh
    echo "Preparing to install..."
    mkdir -p "$IATEMPDIR/install.dir/jre/bin"
    cp /bin/true "$IATEMPDIR/install.dir/jre/bin/java"
    {runs}
    exit 0
    """
TESTS_FIRST = """if [ -x "$IATEMPDIR/install.dir/jre/bin/java" ]; then "$IATEMPDIR/install.dir/jre/bin/java"
    else echo "No Java virtual machine could be found from your PATH"; fi; rm -r "$IATEMPDIR/install.dir" """
JUST_RUNS = '"$IATEMPDIR/install.dir/jre/bin/java" 2>/dev/null'


@needs_root
@pytest.mark.parametrize("runs", [TESTS_FIRST, JUST_RUNS])
def test_installer_on_noexec_that_exits_0(runs: str, mounted: Any, tmp_path: Path) -> None:
    point = mounted("noexec,nosuid,nodev")
    told = why(script(tmp_path / "ids_install", INSTALLER.replace("{runs}", runs)), env={"IATEMPDIR": str(point)})
    assert (told.code, told.ended["exit_code"]) == (1, 0)
    best = told.best
    assert (best["kind"], best["path"]) == ("noexec", f"{point}/install.dir/jre/bin/java")
    assert f"{point} is mounted with the option noexec" in best["statement"]
    assert best["fix"].startswith(f"mount -o remount,exec '{point}'")
    told = why(str(tmp_path / "ids_install"), env={"IATEMPDIR": str(tmp_path)})
    assert (told.code, told.causes) == (0, [])


@needs_root
def test_library_on_noexec(mounted: Any) -> None:
    point = mounted("noexec")
    library = compiled(point / "libx.so", "int x;", "-shared", "-fPIC")
    best = why(sys.executable, "-c", f"import ctypes; ctypes.CDLL({library!r})").best
    assert (best["kind"], best["path"], best["call"], best["error"]) == ("noexec", library, "mmap", "EPERM")


def test_missing_library(tmp_path: Path) -> None:
    compiled(tmp_path / "libplanted.so", "int planted(void) { return 0; }", "-shared", "-fPIC")
    program = compiled(tmp_path / "uses", "int planted(void); int main(void) { return planted(); }", f"-L{tmp_path}", "-lplanted")
    (tmp_path / "libplanted.so").unlink()
    told = why("sh", "-c", f"{program}; exit 0")
    assert (told.code, told.ended["exit_code"], told.best["kind"]) == (1, 0, "missing_library")
    assert f"{program} needs the library libplanted.so" in told.best["statement"]


def test_missing_interpreter(tmp_path: Path) -> None:
    told = why(script(tmp_path / "tool", "#!/opt/no/such/perl -w\n"))
    assert (told.ended["exit_code"], told.best["kind"]) == (127, "missing_interpreter")
    assert "a script for /opt/no/such/perl, which does not exist" in told.best["statement"]
    dos = tmp_path / "dos"
    dos.write_bytes(b"#!/bin/sh\r\necho x\r\n")
    dos.chmod(0o755)
    assert "carriage return" in why("sh", "-c", str(dos)).best["statement"]


def test_wrong_architecture(tmp_path: Path) -> None:
    program = tmp_path / "arm"
    head = bytearray(Path("/bin/true").read_bytes())
    head[18:20] = (183).to_bytes(2, "little")
    program.write_bytes(head)
    program.chmod(0o755)
    for shell in (["bash", "-c", f"{program}; true"], [str(program)]):
        best = why(*shell).best
        assert (best["kind"], best["path"]) == ("wrong_architecture", str(program))
        assert "AArch64" in best["statement"]


@needs_root
def test_full_and_out_of_inodes(mounted: Any) -> None:
    point = mounted("size=64k")
    best = why("sh", "-c", f"dd if=/dev/zero of='{point}/big' bs=4k count=100; exit 0").best
    assert (best["kind"], best["path"]) == ("no_space", f"{point}/big") and f"{point} is full" in best["statement"]
    point = mounted("nr_inodes=3")
    best = why("sh", "-c", f"touch '{point}/a' '{point}/b' '{point}/c'").best
    assert best["kind"] == "no_space" and "no inode left" in best["statement"]


def test_limits(tmp_path: Path) -> None:
    many = "import os\nfor n in range(100): os.open('/dev/null', 0)"
    best = why("sh", "-c", f'ulimit -n 32; {sys.executable} -c "{many}"').best
    assert best["kind"] == "open_files" and "may have 32 files open" in best["statement"]
    best = why("bash", "-c", f"ulimit -f 1; trap '' XFSZ; dd if=/dev/zero of={tmp_path}/big bs=4k count=9").best
    assert (best["kind"], best["path"]) == ("file_size", f"{tmp_path}/big")
    told = why("bash", "-c", f"ulimit -f 1; dd if=/dev/zero of={tmp_path}/big bs=4k count=9; exit 0")
    assert (told.code, told.ended["exit_code"]) == (1, 0)
    assert [cause["kind"] for cause in told.causes] == ["file_size", "signal"]
    assert "wrote more than the limit on file size allows" in told.causes[1]["statement"] and told.causes[1]["fix"].startswith("ulimit -f")
    best = why("bash", "-c", f"ulimit -v 200000; {sys.executable} -c 'bytearray(1 << 30)'").best
    assert best["kind"] == "memory" and "may map 195MB of memory" in best["statement"]
    below = f"ulimit -n 64; ulimit -f 64; ulimit -v 400000; {sys.executable} -c 'open(\"{tmp_path}/big\", \"w\").write(\"x\" * 60000)'"
    assert nothing_claimed("bash", "-c", below)


AS_NOBODY = ("setpriv", "--reuid=65533", "--regid=65534", "--clear-groups")  # with a number that runs nothing else


@needs_root
def test_limits_of_a_user() -> None:
    locks = "#include <stdio.h>\n#include <sys/mman.h>\n#include <unistd.h>\nchar c[1 << 20];\n"
    locks += "int main(int count, char **words) { if (count > 1) return fork() < 0 ? 3 : 0;\n"  # a shell would try for 15 s
    locks += 'if (!mlock(c, sizeof c)) return 0; perror("mlock"); return 4; }'
    program = compiled(Path("/var/tmp") / f"leadline-why-{os.getpid()}", locks)
    try:
        best = why(*AS_NOBODY, "bash", "-c", f"ulimit -u 1; exec {program} fork").best
        told = why(*AS_NOBODY, "bash", "-c", f"ulimit -l 64; {program}; exit 0")
        none = why(*AS_NOBODY, "bash", "-c", f"ulimit -l 0; {program}; exit 0")
        assert nothing_claimed(*AS_NOBODY, "bash", "-c", f"ulimit -u 100000; ulimit -l 2048; {program}")
    finally:
        Path(program).unlink()
        Path(program).with_suffix(".c").unlink()
    assert (best["kind"], best["call"], best["error"]) == ("processes", "clone", "EAGAIN")
    assert "User 65533 may have 1 processes and threads" in best["statement"] and best["fix"].startswith("ulimit -u")
    assert (told.ended["exit_code"], told.best["kind"], told.best["call"]) == (0, "locked_memory", "mlock")
    assert "may lock 64kB of memory" in told.best["statement"] and told.best["fix"].startswith("ulimit -l")
    assert (none.best["kind"], none.best["error"]) == ("locked_memory", "EPERM") and "may lock 0B of memory" in none.best["statement"]


FORKS = """
import os, signal, sys
open(sys.argv[1], "w").write("0")
children = []
try:
    for _ in range(int(sys.argv[2])):
        children.append(os.fork() or signal.pause())
finally:
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.wait()
"""


@needs_root
def test_control_group_that_is_full() -> None:
    """It is the outer one of two that has the limit."""
    with control_group("pids", "3", "pids.max", "pids.max") as group:
        (group / "inner").mkdir()
        try:
            words = (sys.executable, "-c", FORKS, str(group / "inner" / "cgroup.procs"))
            told = why(*words, "3")
            assert nothing_claimed(*words, "2")
        finally:
            (group / "inner").rmdir()
    assert (told.best["kind"], told.best["error"]) == ("processes", "EAGAIN"), told
    assert told.best["statement"] == f"The control group {group} may have 3 processes and threads, and has 3."
    assert "pids.max" in told.best["fix"]


INOTIFY = """
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/inotify.h>
int main(int argc, char **argv) { /* as many instances, and folders that the last one watches, as the arguments say */
    int fd = -1;
    for (int i = 0; i < atoi(argv[1]); i++) if ((fd = inotify_init1(IN_CLOEXEC)) < 0) { perror("inotify_init1"); return 4; }
    for (int i = 2; i < argc; i++) if (inotify_add_watch(fd, argv[i], IN_CREATE) < 0) { perror("inotify_add_watch"); return 5; }
    return 0;
}
"""


@needs_root
def test_limits_of_inotify(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    program, most = compiled(tmp_path / "watcher", INOTIFY), Path("/proc/sys/fs/inotify/max_user_instances").read_text().strip()
    more = ("bash", "-c", 'ulimit -n $((2 * $1)); exec "$2" $((3 * $1 / 2))', "-", most, program)
    told = why(*BY_A_USER, *more)
    assert (told.ended["exit_code"], told.best["kind"], told.best["error"]) == (4, "inotify_instances", "EMFILE"), told
    assert told.best["statement"] == f"User 65533 has as many instances of inotify as the kernel allows: {most}."
    assert told.best["fix"].startswith("sysctl fs.inotify.max_user_instances")
    best = why(*BY_A_USER, "bash", "-c", 'ulimit -n 16; exec "$1" 32', "-", program).best
    assert best["kind"] == "open_files" and "may have 16 files open" in best["statement"]
    # A user namespace has limits of its own, below those of the host.
    two = 'echo 2 > /proc/sys/user/max_inotify_watches; exec "$@"'
    few = ("unshare", "--user", "--map-root-user", "sh", "-c", two, "-", program, "1")
    told = why(*few, "/", "/etc", "/usr")
    assert (told.ended["exit_code"], told.best["kind"], told.best["path"], told.best["error"]) == (5, "inotify_watches", "/usr", "ENOSPC")
    assert "watches as many files as the kernel allows." in told.best["statement"] and "another user namespace" in told.best["evidence"][1]
    assert nothing_claimed(*few, "/", "/etc")


@needs_root
def test_mount_that_is_read_only(mounted: Any) -> None:
    point = mounted("ro")
    told = why("sh", "-c", f"echo x > '{point}/file'")
    assert (told.code, told.best["kind"], told.best["path"], told.best["error"]) == (1, "read_only", f"{point}/file", "EROFS")
    assert f"{point} is mounted read-only" in told.best["statement"]
    assert told.best["fix"].startswith(f"mount -o remount,rw '{point}'")
    assert nothing_claimed("sh", "-c", f"ls '{point}'; test -w '{point}' || echo cannot")


@needs_root
def test_quota_that_is_used_up(tmp_path: Path) -> None:
    """Of a subvolume of btrfs, whose quotas need no further files. The device is not full."""
    if not all(map(shutil.which, ("mkfs.btrfs", "btrfs"))):
        no_oracle("mkfs.btrfs is not installed")
    image, point = tmp_path / "image", tmp_path / "mount"
    with image.open("wb") as file:
        file.truncate(128 << 20)
    point.mkdir()
    subprocess.run(["mkfs.btrfs", "-q", "-m", "single", str(image)], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", str(image), str(point)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a file cannot be mounted: {mounted.stderr}")
    try:
        for words in (["quota", "enable", point], ["subvolume", "create", point / "part"], ["qgroup", "limit", "1M", point / "part"]):
            subprocess.run(["btrfs", *map(str, words)], check=True, capture_output=True)
        told = why("sh", "-c", f"dd if=/dev/zero of={point}/part/big bs=64k count=64 conv=fsync; exit 0")
        assert (told.code, told.ended["exit_code"], told.best["kind"], told.best["error"]) == (1, 0, "no_quota", "EDQUOT"), told
        assert (told.best["path"], told.best["mount"]["type"]) == (f"{point}/part/big", "btrfs")
        assert f"the quota on {point} is used up" in told.best["statement"] and told.best["fix"]
        assert nothing_claimed("sh", "-c", f"rm {point}/part/big && sync -f {point} && echo x > {point}/part/small")
    finally:
        subprocess.run(["umount", str(point)], check=True)


# As a user who may do nothing but read the files of this Python, which may lie in root's home.
BY_A_USER = (*AS_NOBODY, "--inh-caps=-all,+dac_override", "--ambient-caps=-all,+dac_override")


@needs_root
def test_without_root_ones_own_processes_are_followed(tmp_path: Path) -> None:
    program = compiled(tmp_path / "crash", "int main(void) { volatile int *p = 0; return *p; }")
    told = why("sh", "-c", f"cat /no/such/file; {program}; exit 0", by=BY_A_USER)
    assert (told.code, told.ended["processes"]) == (1, 3)
    assert [(cause["kind"], cause["program"]) for cause in told.causes] == [("signal", program)]
    told = why("sh", "-c", "id -u; cat /no/such/file", by=BY_A_USER)
    assert (told.best["kind"], told.best["path"]) == ("file_not_found", "/no/such/file")


@needs_root
def test_setuid_programs_lose_their_rights_without_root() -> None:
    if shutil.which("su") is None:
        no_oracle("su is not installed")
    told = why("su", "-c", "true", by=BY_A_USER)
    assert (told.code, told.best["kind"]) == (1, "setuid_lost")
    assert "su ran without the rights of user 0" in told.best["statement"] and told.best["fix"].startswith("run leadline why as root")
    told = why(*AS_NOBODY, "su", "-c", "true")  # root may follow it without taking a right from it: only the password is missing
    assert [cause["kind"] for cause in told.causes] == ["reported"] and "Authentication failure" in told.best["statement"]


@needs_root
def test_permission_names_the_folder_that_refuses(tmp_path: Path) -> None:
    closed = Path("/var/tmp") / f"leadline-why-{os.getpid()}"
    (closed / "in" / "deep").mkdir(parents=True)
    (closed / "in" / "deep" / "file").write_text("x")
    (closed / "in").chmod(0o700)
    try:
        best = why("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", f"{closed}/in/deep/file").best
    finally:
        shutil.rmtree(closed)
    assert best["kind"] == "permission"
    assert f"User 65534 may not enter {closed}/in, which {closed}/in/deep/file needs." == best["statement"]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def test_refused_connection() -> None:
    port = free_port()
    for program in (
        f"import socket; socket.create_connection(('127.0.0.1', {port}))",
        f"import socket; socket.create_connection(('127.0.0.1', {port}), timeout=9)",  # does not block: the error comes later
    ):
        best = why(sys.executable, "-c", program).best
        assert (best["kind"], best["address"], best["error"]) == ("no_connection", f"127.0.0.1:{port}", "ECONNREFUSED")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        best = why(sys.executable, "-c", f"import socket; socket.create_server(('127.0.0.1', {port}))").best
    assert (best["kind"], best["address"]) == ("address_in_use", f"127.0.0.1:{port}")


@needs_root
def test_name_that_no_server_answers() -> None:
    best = why("unshare", "-n", "getent", "hosts", "db.planted.example").best
    assert best["kind"] == "name_resolution", best
    assert "ENETUNREACH" in str(best["evidence"])


# In a network of its own, where the only name server is this one. It knows one name, and says of others what their first letters ask for.
NAME_SERVER = """
import socket, subprocess, sys, threading

def answers(server):
    while True:
        question, client = server.recvfrom(512)
        name = question[13:].split(b"\\0")[0]
        code = 0 if name.startswith(b"db") else 2 if name.startswith(b"broken") else 5 if name.startswith(b"refused") else 3
        end = question.index(b"\\0", 12) + 5
        found = code == 0 and question[end - 3] == 1
        head = question[:2] + bytes([0x81, 0x80 | code, 0, 1, 0, int(found), 0, 0, 0, 0])
        answer = bytes.fromhex("c00c00010001000000100004") + bytes([127, 0, 0, 1]) if found else b""
        server.sendto(head + question[12:end] + answer, client)

subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
subprocess.run(["mount", "--bind", sys.argv[1], "/etc/resolv.conf"], check=True)
subprocess.run(["mount", "--bind", sys.argv[2], "/etc/nsswitch.conf"], check=True)
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 53))
threading.Thread(target=answers, args=(server,), daemon=True).start()
sys.exit(subprocess.run(sys.argv[3:]).returncode)
"""


@needs_root
@pytest.mark.parametrize(
    ("name", "said"),
    [("nosuch.planted.example", "no such name"), ("broken.planted.example", "the name server failed"),
     ("refused.planted.example", "the name server refused to answer"), ("db.planted.example", "")],
)  # fmt: skip
def test_answers_of_a_name_server(name: str, said: str, tmp_path: Path) -> None:
    if shutil.which("ip") is None:
        no_oracle("ip is not installed")
    (tmp_path / "resolv.conf").write_text("nameserver 127.0.0.1\noptions attempts:1\n")
    (tmp_path / "nsswitch.conf").write_text("hosts: files dns\n")
    within = ("unshare", "-n", "-m", sys.executable, "-c", NAME_SERVER, f"{tmp_path}/resolv.conf", f"{tmp_path}/nsswitch.conf")
    if not said:
        assert nothing_claimed("getent", "hosts", name, by=within)
        return
    told = why("getent", "hosts", name, by=within)
    assert (told.code, told.best["kind"]) == (1, "name_resolution"), told
    assert told.best["statement"] == f"The name {name} was not found: {said}."
    assert told.best["evidence"][0].startswith(f"asked 127.0.0.1:53: {said}, by getent")


def test_child_that_died_and_a_parent_that_exited_0(tmp_path: Path) -> None:
    program = compiled(tmp_path / "crash", "int main(void) { volatile int *p = 0; return *p; }")
    told = why("sh", "-c", f"{program}; exit 0")
    assert (told.code, told.ended["exit_code"], told.best["kind"]) == (1, 0, "signal")
    assert f"{program} used memory that it does not have: it was ended by SIGSEGV." == told.best["statement"]
    assert "exit code 0" in told.best["evidence"][-1]


SECCOMP = """
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
int main(int argc, char **argv) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, ACTION),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    if (argc > 1 && mkdir("/tmp/leadline-never-made", 0700)) { perror("mkdir"); return 4; }
    return 0;
}
"""


def test_filter_of_its_own(tmp_path: Path) -> None:
    program = compiled(tmp_path / "sandboxed", SECCOMP, "-DACTION=SECCOMP_RET_ERRNO|EPERM")
    told = why(program, "mkdir")
    assert (told.ended["exit_code"], told.best["kind"], told.best["call"]) == (4, "seccomp", "mkdir")
    assert nothing_claimed(program)


@pytest.mark.parametrize("action", ["SECCOMP_RET_KILL_PROCESS", "SECCOMP_RET_TRAP"])
def test_filter_of_its_own_that_kills(action: str, tmp_path: Path) -> None:
    program = compiled(tmp_path / "sandboxed", SECCOMP, f"-DACTION={action}")
    told = why("sh", "-c", f"{program} mkdir; exit 0")
    assert (told.code, told.ended["exit_code"], told.best["kind"]) == (1, 0, "signal")
    assert told.best["statement"] == f"{program} made the call mkdir, which a seccomp filter forbids: it was ended by SIGSYS."
    assert "sandbox" in told.best["fix"]


def test_a_missing_translation_of_the_error_is_not_its_cause() -> None:
    told = why("ls", "/nowhere/at/all", env={"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"})
    assert [cause["statement"] for cause in told.causes] == ["/nowhere/at/all does not exist."]


def test_file_that_is_not_there() -> None:
    best = why("cat", "/no/such/file").best
    assert (best["kind"], best["path"]) == ("file_not_found", "/no/such/file")
    assert why("leadline-no-such-program").best["kind"] == "program_not_found"


# -- nothing to claim --------------------------------------------------------------------------------------------------

CLEAN = [
    "true",
    "ls",
    f"{sys.executable} -c 'import json, ctypes, sqlite3, ssl'",
    "bash -c 'ls /nonexistent || true'",
    "bash -c 'cat /root/x 2>/dev/null; test -e /nope; command -v nosuch; nosuchprogram; true'",
    "bash -c 'sleep 60 & kill -9 $!; wait; true'",
    "bash -c 'yes | head -1'",
    "sh -c 'test -x /etc/passwd; [ -f /x/y ]; env true'",
    "git --version",
    "git status",
    "psql --version",
    "find /usr/lib -maxdepth 2 -name x",
    "bash -c 'grep -q nothing /etc/passwd || echo none'",
]


@pytest.mark.parametrize("line", CLEAN)
def test_clean_commands(line: str, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    done = subprocess.run(f"{' '.join(WHY)} --json -- {line}", shell=True, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    told = json.loads(done.stdout[done.stdout.index('{"explained"') :])
    assert (done.returncode, told["causes"]) == (0, []), done.stdout


def test_compile_is_clean(tmp_path: Path) -> None:
    (tmp_path / "hello.c").write_text("#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n")
    told = why("gcc", "-O2", "-o", "hello", "hello.c", cwd=tmp_path)
    assert (told.code, told.causes, told.failed) == (0, [], [])
    assert subprocess.run([str(tmp_path / "hello")], capture_output=True).stdout == b"hello\n"


def test_failure_without_a_cause() -> None:
    told = why("sh", "-c", "exit 9")
    assert (told.code, told.ended["exit_code"], told.causes) == (3, 9, [])


# -- following ---------------------------------------------------------------------------------------------------------


def test_thousand_children() -> None:
    told = why("sh", "-c", "i=0; while [ $i -lt 1000 ]; do /bin/true & i=$((i+1)); done; wait; kill -SEGV $$")
    assert (told.ended["processes"], told.ended["signal"]) == (1001, signal.SIGSEGV)


THREADS = """
#include <pthread.h>
#include <unistd.h>
static void *spin(void *x) { for (;;) pause(); return x; }
static void *run(void *x) { execl("/bin/sh", "sh", "-c", "exit 7", (char *)0); return x; }
int main(void) {
    pthread_t t;
    for (int i = 0; i < 50; i++) pthread_create(&t, 0, spin, 0);
    pthread_create(&t, 0, run, 0);
    for (;;) pause();
}
"""


def test_exec_by_a_thread_among_many(tmp_path: Path) -> None:
    told = why(compiled(tmp_path / "threads", THREADS, "-pthread"))
    assert (told.ended["exit_code"], told.ended["processes"]) == (7, 1)


def test_input_and_outputs_are_the_commands_own() -> None:
    done = subprocess.run([*WHY, "--", "sh", "-c", "cat; echo planted >&2; exit 5"], input="in\n", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "in\n")
    assert done.stderr.splitlines()[:2] == ["planted", "leadline why: sh: exit code 5, 2 processes"]


def test_signals_are_passed_on() -> None:
    line = "trap 'echo caught; exit 6' TERM; echo ready; while :; do sleep 0.1; done"
    process = subprocess.Popen([*WHY, "--", "sh", "-c", line], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=30)
    assert (out, process.returncode) == ("caught\n", 3) and "sh: exit code 6" in err


def test_what_the_command_leaves_running_runs_on(tmp_path: Path) -> None:
    """Its calls that the filter stops would fail if nobody followed it."""
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    daemon = f"(read line < {fifo}; /bin/echo $line > {tmp_path}/result) >/dev/null 2>&1 &"
    done = subprocess.run([*WHY, "--json", "--linger", "0", "--", "sh", "-c", daemon], capture_output=True, text=True, timeout=30)
    assert json.loads(done.stdout)["command"]["left_running"] == 1
    with fifo.open("w") as go:
        go.write("later\n")
    while not (tmp_path / "result").exists() or not (tmp_path / "result").read_text():
        os.sched_yield()
    assert (tmp_path / "result").read_text() == "later\n"
