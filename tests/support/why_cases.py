"""Commands that fail as commands do in real life, each with the cause that is to be found. The table of docs/guides/why-cases.md lists them."""

from __future__ import annotations

from dataclasses import dataclass

# With a number that runs nothing else.
USER = "setpriv --reuid=65533 --regid=65534 --clear-groups"


@dataclass(frozen=True)
class Case:
    """title: as the table has it. run: what bash runs, followed, in a directory of its own; setup: what it runs before. kind: "" if there is no
    cause to be found. says: part of the best cause's statement. never: what no cause may say. root: mounts, other users, attributes.
    needs: programs."""

    title: str
    run: str
    kind: str
    says: str = ""
    setup: str = ""
    fix: str = ""
    never: str = ""
    root: bool = False
    needs: str = ""


TWO_LIBRARIES = """
printf 'int old(void) { return 0; }\\nint planted(void) { return 0; }' > new.c; printf 'int old(void) { return 0; }' > old.c
printf 'V_1 { global: old; };\\n' > v1; printf 'V_1 { global: old; };\\nV_2 { global: planted; } V_1;\\n' > v2
printf 'int planted(void); int main(void) { return planted(); }' > uses.c
"""
SPIN = "printf 'int main(void) { for (;;); }' > spin.c; cc -o spin spin.c"
DEEP = "printf 'int f(int n) { volatile char c[4096]; c[0] = n; return f(n + 1) + c[0]; } int main(void) { return f(0); }' > deep.c; cc -O0 -o deep deep.c"
MAKEFILE = "printf 'all: prog\\nprog: prog.o\\n\\tcc -o prog prog.o $(LIBS)\\nprog.o: prog.c\\n\\tcc -c prog.c\\n"
MAKEFILE += "install: all\\n\\tinstall -m 755 prog $(DESTDIR)/bin/prog\\n' > Makefile; "
CONFIGURE = "printf 'AC_INIT([planted],[1])\\nAC_CONFIG_SRCDIR([configure.ac])\\nAC_PROG_CC\\nAC_OUTPUT\\n' > configure.ac; autoconf; "
CARGO = "mkdir -p src; printf '[package]\\nname = \"planted\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n' > Cargo.toml; "
LISTEN = "import signal, socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); signal.alarm(60); signal.pause()"

BUILDS = (
    Case("`make install` into a directory that is not there", "make install DESTDIR=/nonexistent", "file_not_found", "The directory /nonexistent does not exist",
        MAKEFILE + "echo 'int main(void) { return 0; }' > prog.c; make", never="install does not exist"),
    Case("`make install` without the right to write", f"{USER} make install DESTDIR=$PWD/closed", "permission", "may not make anything in",
        MAKEFILE + "echo 'int main(void) { return 0; }' > prog.c; make; mkdir -p closed/bin", "setfacl -m u:65533:wx", root=True),
    Case("`make all` of a source with an error", "make all", "reported", "'y' undeclared", MAKEFILE + "echo 'int main(void) { return y; }' > prog.c", never="does not exist"),
    Case("`make` of a file that no rule makes", "make", "no_rule", "make has no rule to make prog.c", MAKEFILE),
    Case("`make` with a compiler that is not installed", "make", "program_not_found", "There is no program nosuchcc", "printf 'all:\\n\\tnosuchcc -c x.c\\n' > Makefile"),
    Case("`make` whose recipe runs a script that may not be executed", "make", "permission", "may not execute", "printf 'all:\\n\\t./build.sh\\n' > Makefile; echo 'echo x' > build.sh", "chmod u+x"),
    Case("`make` in which a program exits with 1 and says nothing", "make", "reported", "Error 1", "printf 'all:\\n\\t@false\\n' > Makefile; touch all.in", never="does not exist"),
    Case("`make -j` of which one recipe fails", "make -j3", "reported", "ended with exit code 3, and printed last: boom", "printf 'all: a b c\\na c:\\n\\tsleep 0.2\\nb:\\n\\t@echo boom >&2; exit 3\\n' > Makefile"),
    Case("A header that is not installed", "make", "missing_header", "includes nosuch/planted.h", MAKEFILE + "echo '#include <nosuch/planted.h>' > prog.c"),
    Case("A library that the linker does not find", "make LIBS=-lplanted_nosuch", "missing_link_library", "finds no library planted_nosuch", MAKEFILE + "echo 'int main(void) { return 0; }' > prog.c"),
    Case("A function that no library has", "make", "undefined_reference", "The program uses planted", MAKEFILE + "echo 'int planted(void); int main(void) { return planted(); }' > prog.c"),
    Case("autoconf's `configure` without a compiler", "PATH=$PWD/bin ./configure", "program_not_found", "There is no C compiler",
        CONFIGURE + "mkdir bin; ln -s /usr/bin/* bin/ 2>/dev/null; (cd bin; rm -f *gcc* *cc cc* c89* c99* *clang* cl.exe *-cl tcc)", needs="autoconf"),
    Case("autoconf's `configure` with a compiler that fails", "CC=false ./configure", "reported", "C compiler cannot create executables", CONFIGURE, needs="autoconf", never="does not exist"),
    Case("`cmake` without a package", "cmake -S . -B out", "reported", "", "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(p NONE)\\nfind_package(Nosuch REQUIRED)\\n' > CMakeLists.txt", needs="cmake"),
    Case("`cmake` without a source directory", "cmake -S nosuch -B out", "file_not_found", "nosuch does not exist", needs="cmake"),
    Case("`cmake --build` of a source with an error", "cmake --build out", "reported", "undeclared",
        "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(p C)\\nadd_executable(p p.c)\\n' > CMakeLists.txt; echo 'int main(void) { return y; }' > p.c; cmake -S . -B out", needs="cmake"),
    Case("`cargo build` with a type error", "cargo build --offline", "reported", "mismatched types", CARGO + "echo 'fn main() { let x: u8 = \"a\"; }' > src/main.rs", needs="cargo"),
    Case("`cargo build` with a crate that is not there", "cargo build --offline", "package_not_found", "finds no package planted_nosuch",
        CARGO + "printf '[dependencies]\\nplanted_nosuch = \"1\"\\n' >> Cargo.toml; echo 'fn main() {}' > src/main.rs", needs="cargo"),
    Case("`npm run` of a script that is not there", "npm run nosuch", "reported", "", "echo '{\"name\": \"p\", \"version\": \"1.0.0\"}' > package.json", needs="npm"),
    Case("`npm run` of a script that fails", "npm run test", "node_module", "Node finds no module planted-nosuch",
        "echo '{\"name\": \"p\", \"version\": \"1.0.0\", \"scripts\": {\"test\": \"node t.js\"}}' > package.json; echo 'require(\"planted-nosuch\")' > t.js", needs="npm"),
    Case("`npm install` without package.json", "npm ci", "reported", "", needs="npm"),
    Case("`node` with a file that is not there", "node -e 'require(\"fs\").readFileSync(\"/no/such/planted.json\")'", "file_not_found", "/no/such/planted.json does not exist", needs="node"),
    Case("`pip install` of a package that is not there", "{python} -m pip install --no-index planted-nosuch", "package_not_found", "finds no package planted-nosuch"),
    Case("`pip install` of a source whose setup fails", "{python} -m pip install --no-index --no-build-isolation ./p", "python_module", "has no module planted_nosuch",
        "mkdir p; echo 'import planted_nosuch' > p/setup.py"),
    Case("A Python module that is not installed", "{python} -c 'import planted_nosuch'", "python_module", "has no module planted_nosuch"),
    Case("A class that Java does not find", "java -cp . Nosuch", "java_class", "finds no class Nosuch", needs="java"),
)  # fmt: skip

PROGRAMS = (
    Case("A version of a library that is too old (`GLIBC_2.38 not found`)", "./uses", "library_too_old", "needs version V_2 of",
        TWO_LIBRARIES + "cc -shared -fPIC -Wl,--version-script=v2 -o libp.so new.c; cc -o uses uses.c -L. -lp -Wl,-rpath,$PWD; cc -shared -fPIC -Wl,--version-script=v1 -o libp.so old.c", never="does not exist"),
    Case("A symbol that a library does not have", "LD_BIND_NOW=1 ./uses", "undefined_symbol", "uses the symbol planted",
        TWO_LIBRARIES + "cc -shared -fPIC -o libp.so new.c; cc -o uses uses.c -L. -lp -Wl,-rpath,$PWD; cc -shared -fPIC -o libp.so old.c", never="does not exist"),
    Case("A library that is garbage", "./uses", "bad_library", "is not a library that", TWO_LIBRARIES + "cc -shared -fPIC -o libp.so new.c; cc -o uses uses.c -L. -lp -Wl,-rpath,$PWD; yes garbage | head -c 9999 > libp.so", never="does not exist"),
    Case("A library that was cut", "./uses", "bad_library", "file too short", TWO_LIBRARIES + "cc -shared -fPIC -o libp.so new.c; cc -o uses uses.c -L. -lp -Wl,-rpath,$PWD; : > libp.so"),
    Case("A library that is missing", "./uses", "missing_library", "needs the library libp.so", TWO_LIBRARIES + "cc -shared -fPIC -o libp.so new.c; cc -o uses uses.c -L. -lp; rm libp.so"),
    Case("A library that Python loads and that is missing", "{python} -c 'import ctypes; ctypes.CDLL(\"libplanted.so.7\")'", "missing_library", "needs the library libplanted.so.7"),
    Case("`#!/usr/bin/env python3` with a carriage return", "./tool", "missing_interpreter", "carriage return", "printf '#!/usr/bin/env python3\\r\\nprint(1)\\r\\n' > tool; chmod +x tool"),
    Case("`#!/bin/sh` with a carriage return", "./tool", "missing_interpreter", "carriage return", "printf '#!/bin/sh\\r\\necho 1\\r\\n' > tool; chmod +x tool"),
    Case("An interpreter that is not installed", "./tool", "missing_interpreter", "a script for /opt/no/such/perl", "printf '#!/opt/no/such/perl\\n' > tool; chmod +x tool"),
    Case("A program whose header is damaged", "./cut", "not_a_program", "header is damaged", "printf '\\177ELF' > cut; chmod +x cut"),
    Case("A directory that is started as a program", "$PWD/d", "reported", "Is a directory", "mkdir d", never="access list"),
    Case("A message about no file, and files that were looked for at the start", "{python} -c 'assert False, \"no such file or directory\"'", "reported", "AssertionError", never="does not exist"),
    Case("A program for another processor", "./arm", "wrong_architecture", "a program for AArch64", "cp /bin/true arm; printf '\\267\\0' | dd of=arm bs=1 seek=18 conv=notrunc"),
    Case("A program on a mount with noexec", "./m/true", "noexec", "is mounted with the option noexec", "mkdir m; mount -t tmpfs -o noexec none m; cp /bin/true m/", "mount -o remount,exec", root=True),
    Case("A program that is not installed", "planted-nosuch --help", "program_not_found", "There is no program planted-nosuch"),
    Case("A program that a script calls and that is not installed", "sh ./s", "program_not_found", "There is no program planted-nosuch", "printf 'set -e\\nplanted-nosuch --help\\necho done\\n' > s"),
    Case("A program that is written while it is started", "exec 9>>./t; ./t", "program_in_use", "open for writing", "cp /bin/true t"),
    Case("A program that is replaced while it runs", "cp /bin/true ./t", "program_in_use", "that t (pid", "cp /bin/sleep t; ./t 20 >/dev/null 2>&1 & echo $! > pid", "rename"),
    Case("More arguments than fit", "/bin/true $(seq 1 500000)", "too_many_arguments", "more arguments and environment than fit"),
    Case("A program that crashes", "./crash; exit 3", "signal", "used memory that it does not have", "printf 'int main(void) { volatile int *p = 0; return *p; }' > c.c; cc -o crash c.c"),
    Case("A function that calls itself without end", "ulimit -s 512; ./deep", "stack_limit", "used up its stack", DEEP),
    Case("`pipefail` and a reader that ends first", "set -o pipefail; yes | head -1", "signal", "wrote to a pipe whose reader had ended"),
    Case("A file to be made in a directory that was removed", "mkdir z; cd z; rmdir ../z; touch new", "file_not_found", "The current directory", fix="cd to a directory"),
    Case("A missing file in a pipeline", "cat /no/such/planted | grep x", "file_not_found", "/no/such/planted does not exist"),
    Case("A script that stops at a failed command (`set -e`)", "sh -e ./s", "file_not_found", "planted.sql does not exist", "printf 'echo start\\ncp planted.sql out\\necho done\\n' > s"),
    Case("A script that says more after the command that failed", "sh ./s", "file_not_found", "planted.sql does not exist", "printf 'cp planted.sql out || { echo \"installation failed\" >&2; exit 1; }\\n' > s"),
    Case("A script with a reason of its own after a failure that it went on from", "sh ./s", "reported", "licence has expired", "printf 'cat optional.conf\\necho \"error: the licence has expired\" >&2\\nexit 3\\n' > s"),
    Case("An optional file, and `exec` of a program that fails", "read x < /opt/optional.conf 2>/dev/null; exec /bin/false", "", never="optional.conf"),
    Case("An optional file that is asked for quietly", "cat /opt/optional.conf 2>/dev/null; ./f", "", "", "printf '#!/bin/sh\\nexit 4\\n' > f; chmod +x f", never="optional.conf"),
    Case("A failure that the script went on from, with an exit code of its own", "cp /opt/planted . || true; exit 4", "", never="planted"),
    Case("A failure that the script went on from, and printed more", "cp /opt/planted .; echo continuing; exit 1", "", never="planted"),
    Case("A file that a script reads, and goes on without", "source /opt/planted.sh; echo done; exit 5", "", never="planted"),
    Case("A failure that was reported, and then a program that fails silently", "cat /opt/planted; /bin/false", "", never="planted"),
    Case("A warning that a file is missing", "{python} -c 'import logging\ntry: open(\"/opt/planted\")\nexcept OSError as e: logging.warning(e)\nraise SystemExit(3)'", "", never="planted"),
    Case("A failure that was printed, and a reason of its own", "{python} -c 'try: open(\"/opt/planted\")\nexcept OSError as e: print(e, flush=True)\nraise SystemExit(\"error: license expired\")'", "reported", "license expired"),
    Case("A failure printed into a buffer that is flushed at the end, and a reason of its own", "{python} -c 'import sys\ntry: open(\"/opt/planted\")\nexcept OSError as e: print(e)\nsys.exit(\"cannot read /opt/licence: expired\")'", "reported", "licence: expired"),
    Case("A program that Python starts and that is not installed", "{python} -c 'import subprocess; subprocess.run([\"planted-nosuch\"], check=True)'", "program_not_found", "There is no program planted-nosuch"),
    Case("A signal that a process sends", "sh -c 'kill -SEGV $$'; exit 139", "signal", "was sent a signal by a process"),
    Case("`timeout`", "timeout 0.5 sleep 20", "timeout", "sleep did not end in the time"),
    Case("A shim as pyenv makes them", "PYENV_ROOT=$PWD/root root/shims/python -c 'open(\"/no/such/planted\")'", "file_not_found", "/no/such/planted does not exist",
        "mkdir -p root/shims root/libexec; printf '#!/usr/bin/env bash\\nset -e\\n[ -n \"$PYENV_DEBUG\" ] && set -x\\nprogram=\"${0##*/}\"\\nexport PYENV_ROOT\\nexec \"$PYENV_ROOT/libexec/pyenv\" exec \"$program\" \"$@\"\\n' > root/shims/python; "
        "printf '#!/usr/bin/env bash\\nread -r v < \"$PWD/.python-version\" 2>/dev/null || read -r v < \"$PYENV_ROOT/version\" 2>/dev/null || v=system\\nshift 2\\nexec {python} \"$@\"\\n' > root/libexec/pyenv; chmod +x root/shims/python root/libexec/pyenv"),
)  # fmt: skip

FILES = (
    Case("A configuration that is not there", "cat /etc/planted/main.conf", "file_not_found", "/etc/planted/main.conf does not exist"),
    Case("A file in the place of a directory", "cat file/x", "file_not_found", "needs a directory where there is a file", "echo > file"),
    Case("A copy into a directory that is not there", "cp file out/file", "file_not_found", "The directory", "echo > file", "mkdir -p"),
    Case("A missing file below a closed directory", f"{USER} cat $PWD/closed/nosuch", "permission", "may not enter", "mkdir -m 700 closed", ":x ", never="may not write", root=True),
    Case("A file that only its owner may read", f"{USER} cat $PWD/secret", "permission", "may not read", "echo > secret; chmod 600 secret", ":r ", never="write", root=True),
    Case("A file that is written by another user", f"{USER} sh -c 'echo x >> $PWD/log'", "permission", "may not write", "echo > log; chmod 644 log", ":w ", root=True),
    Case("A directory that another user may not write", f"{USER} touch $PWD/new", "permission", "may not make anything in", "", ":wx ", root=True),
    Case("A file that is immutable", "rm file", "immutable", "is immutable", "echo > file; chattr +i file", "chattr -i", root=True, needs="chattr"),
    Case("A mount that is read-only", "cp /etc/hostname m/", "read_only", "is mounted read-only", "mkdir m; mount -t tmpfs -o ro none m", "remount,rw", root=True),
    Case("A file system that is full", "cp /bin/bash m/", "no_space", "is full", "mkdir m; mount -t tmpfs -o size=64k none m", root=True),
    Case("`tar` onto a file system that is full", "tar xf x.tar -C m", "no_space", "is full", "mkdir m; mount -t tmpfs -o size=64k none m; mkdir d; head -c 200000 /dev/zero > d/big; tar cf x.tar d", root=True),
    Case("A file system without inodes", "touch m/a m/b m/c m/d", "no_space", "no inode left", "mkdir m; mount -t tmpfs -o nr_inodes=3 none m", root=True),
    Case("A rename to another file system", "{python} -c 'import os; os.rename(\"file\", \"m/file\")'", "other_file_system", "they lie on different mounts", "echo > file; mkdir m; mount -t tmpfs none m", root=True),
    Case("A hard link to another file system", "ln file m/file", "other_file_system", "cannot be linked", "echo > file; mkdir m; mount -t tmpfs none m", root=True),
    Case("A mount that is in use", "umount m", "in_use", "in use", "mkdir m; mount -t tmpfs none m; (cd m; exec sleep 20 >/dev/null 2>&1) & echo $! > pid", "fuser", root=True),
    Case("A name that is too long", "touch $(printf 'a%.0s' $(seq 300))", "name_too_long", "300 bytes is too long"),
    Case("A circle of symbolic links", "cat a", "link_loop", "circle of symbolic links", "ln -s a b; ln -s b a"),
    Case("Another user's file in a sticky directory", f"{USER} rm $PWD/t/file", "permission", "sticky directory", "mkdir -m 1777 t; echo > t/file", root=True),
    Case("A hard link to another user's file", f"{USER} ln $PWD/secret $PWD/t/link", "permission", "hard link", "mkdir -m 777 t; echo > secret; chmod 600 secret", root=True),
    Case("A change of owner without the right", f"{USER} chown 1 $PWD/t/file", "not_permitted", "CAP_CHOWN", f"mkdir -m 777 t; {USER} touch t/file", root=True),
    Case("A user that does not exist", "chown planted-nosuch file", "unknown_user", "no user planted-nosuch", "echo > file"),
    Case("A name that no user may have", "useradd x:y", "reported", "invalid user name", never="has no user", root=True, needs="useradd"),
    Case("A setting of the kernel that is not there", "cat /proc/sys/vm/planted", "file_not_found", "/proc/sys/vm/planted does not exist", fix="modprobe"),
    Case("A group that does not exist", "install -g planted-nosuch file out", "unknown_user", "group planted-nosuch", "echo > file"),
    Case("A lock that another process holds", "flock -n lock true", "held_lock", "holds a lock on", "flock lock sleep 20 >/dev/null 2>&1 & echo $! > pid; while flock -n lock true; do :; done"),
    Case("A lock of git", "git add file", "held_lock", "index.lock", "git init -q; echo > file; touch .git/index.lock", needs="git"),
)  # fmt: skip

LIMITS = (
    Case("Too many open files", "ulimit -n 32; {python} -c 'x = [open(\"/dev/null\") for n in range(99)]'", "open_files", "may have 32 files open"),
    Case("A file larger than allowed", "ulimit -f 1; trap '' XFSZ; dd if=/dev/zero of=big bs=4k count=9", "file_size", "cannot grow"),
    Case("More memory than allowed", "ulimit -v 200000; {python} -c 'bytearray(1 << 30)'", "memory", "may map 195MB of memory"),
    Case("More CPU time than allowed", "ulimit -t 1; ./spin", "cpu_limit", "more CPU time than its limit of 1 s", SPIN, "ulimit -t"),
    Case("More CPU time than allowed, with a warning", "ulimit -St 1; ./spin", "cpu_limit", "more CPU time", SPIN, "ulimit -t"),
    Case("Segments of shared memory (System V)", "unshare -i sh -c 'echo 0 > /proc/sys/kernel/shmmni; ipcmk -M 4096'", "system_v", "asked for shared memory", fix="kernel.shmmni", root=True),
    Case("A segment of shared memory that is too large", "unshare -i sh -c 'echo 4096 > /proc/sys/kernel/shmmax; ipcmk -M 99999'", "system_v", "asked for a segment of", fix="kernel.shmmax", root=True),
    Case("Semaphores (System V)", "unshare -i sh -c 'echo 250 32000 32 0 > /proc/sys/kernel/sem; ipcmk -S 1'", "system_v", "asked for semaphores", fix="kernel.sem", root=True),
    Case("Asynchronous I/O", "./aio", "asynchronous_io", "asynchronous I/O", "printf '#include <stdio.h>\\n#include <unistd.h>\\n#include <sys/syscall.h>\\nint main(void) { long x = 0; if (syscall(SYS_io_setup, 2000000, &x) < 0) { perror(\"io_setup\"); return 1; } return 0; }' > aio.c; cc -o aio aio.c", "fs.aio-max-nr"),
)  # fmt: skip

NETWORK = (
    Case("A port that is taken", "{python} -m http.server --bind 127.0.0.1 $(cat port)", "address_in_use", "listens there", "{python} -c \"" + LISTEN + "\" > port 2>/dev/null & echo $! > pid; until [ -s port ]; do :; done"),
    Case("An address that this host does not have", "{python} -m http.server --bind 192.0.2.1 0", "address_in_use", "this host has no such address"),
    Case("`curl` to a port where nothing listens", "curl -sS http://127.0.0.1:1/", "no_connection", "nothing listens there", needs="curl"),
    Case("`psql` to a socket that is not there", "psql -h /no/such/planted", "no_connection", "the socket does not exist", needs="psql"),
    Case("A socket in a closed directory", f"{USER} /usr/bin/env perl -MSocket -e 'socket(S, PF_UNIX, SOCK_STREAM, 0); bind(S, pack_sockaddr_un($ARGV[0])) or die \"bind: $!\\n\"' $PWD/closed/s", "permission", "may not enter", "mkdir -m 700 closed", ":x ", root=True, needs="perl"),
    Case("A host name that no server knows", "unshare -n curl -sS http://db.planted.example/", "name_resolution", "db.planted.example", root=True, needs="curl"),
    Case("A certificate that has expired", "openssl verify -CAfile c.pem -attime 4102444800 c.pem", "certificate", "has expired", "openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -days 9 -subj /CN=planted", needs="openssl"),
    Case("A certificate of an unknown issuer", "openssl verify c.pem", "certificate", "does not trust", "openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -days 9 -subj /CN=planted", needs="openssl"),
)  # fmt: skip
CASES = BUILDS + PROGRAMS + FILES + LIMITS + NETWORK

# A clean neighbour of each rule about a call: it fails as there, is told, and the command copes. What is named even of a command that ends
# with 0 (installers do) does not fail here: the mount, the limit or the file is as there, and the command goes around it.
COPES = (
    ("ETXTBSY", "cp /bin/sleep t; ./t 20 >/dev/null 2>&1 & echo $! > pid; until cmp -s /proc/$!/exe t; do :; done; cp /bin/true t || cp --remove-destination /bin/true t; ./t"),
    ("EBUSY", "mkdir m; mount -t tmpfs none m; (cd m; umount ../m) || echo later; umount m"),
    ("EAGAIN of a lock", "exec 9>l; flock 9; flock -n l true || echo held"),
    ("EXDEV", "mkdir m; mount -t tmpfs none m; echo > f; mv f m/"),
    ("ENAMETOOLONG", "touch $(printf 'a%.0s' $(seq 300)) || touch short"),
    ("ELOOP", "ln -s a b; ln -s b a; cat a || echo none"),
    ("E2BIG", "/bin/true $(seq 1 500000) || seq 1 50000 | xargs /bin/true"),
    ("ENOSPC of System V", "unshare -i sh -c 'echo 0 > /proc/sys/kernel/shmmni; ipcmk -M 4096 || echo none'"),
    ("ENOMEM of large pages", "{python} -c 'import mmap\ntry: mmap.mmap(-1, 1 << 40, flags=0x40022)\nexcept OSError as e: print(e)\nmmap.mmap(-1, 4096)'"),
    ("ENOMEM", "{python} -c 'try: bytearray(1 << 50)\nexcept MemoryError: print(1)'"),
    ("EACCES of noexec", "mkdir m; mount -t tmpfs -o noexec none m; cp /bin/true m/; printf 'echo 1\\n' > m/s; sh m/s; cmp m/true /bin/true"),
    ("EROFS", "mkdir m; mount -t tmpfs -o ro none m; ls m; test -w m || touch x"),
    ("ENOSPC", "mkdir m; mount -t tmpfs -o size=64k none m; head -c 65536 /dev/zero > m/x; df m; rm m/x"),
    ("ENOENT of an interpreter", "printf '#!/no/such/planted\n' > s; chmod +x s; sh ./s"),
    ("ENOEXEC", "cp /bin/true arm; printf '\\267\\0' | dd of=arm bs=1 seek=18 conv=notrunc; chmod -x arm; file arm || od -c arm | head -1"),
    ("EFBIG", "(ulimit -f 1; trap '' XFSZ; dd if=/dev/zero of=big bs=1k count=1); rm big"),
    ("EMFILE", "(ulimit -n 8; {python} -c 'import os\ntry: [os.dup(0) for n in range(20)]\nexcept OSError as e: print(e)')"),
    ("EACCES", f"mkdir -m 700 closed; {USER} cat $PWD/closed/x || echo none"),
    ("EPERM", f"echo > f; {USER} chown 1 $PWD/f || echo no"),
    ("EPERM of a sticky directory", f"mkdir -m 1777 t; echo > t/f; {USER} rm -f $PWD/t/f || rm t/f"),
    ("EPERM of an immutable file", "echo > f; chattr +i f; rm f || chattr -i f; rm f"),
    ("EADDRINUSE", "{python} -c 'import socket\na = socket.create_server((\"127.0.0.1\", 0))\ntry: socket.create_server(a.getsockname())\nexcept OSError as e: print(e)'"),
    ("ECONNREFUSED", "{python} -c 'import socket\ntry: socket.create_connection((\"127.0.0.1\", 1))\nexcept OSError as e: print(e)'"),
    ("a name without an address", "unshare -n getent hosts db.planted.example || echo none"),
    ("a library that is missing", "{python} -c 'import ctypes\ntry: ctypes.CDLL(\"libplanted.so.7\")\nexcept OSError as e: print(e)'"),
    ("a signal", "sh -c 'kill -SEGV $$' || echo gone"),
    ("a timeout", "timeout 0.2 sleep 20 || echo late"),
    ("a user that does not exist", "echo > f; chown planted-nosuch f || echo no"),
    ("a compiler's message", "echo 'int x = y;' > c.c; cc -c c.c || echo 'int x;' > c.c; cc -c c.c"),
)  # fmt: skip
