"""Builds that work, with the failures that such builds have on their way: probes of configure, optional packages, paths that are searched."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Build:
    """setup: what bash runs in an empty folder before; run: what is followed, and works; needs: programs."""

    title: str
    run: str
    setup: str
    needs: str = ""


HELLO = "printf '#include <stdio.h>\\nint main(void) { return puts(\"hello\") < 0; }\\n' > hello.c; "
AUTOTOOLS = (
    "printf 'AC_INIT([p],[1])\\nAM_INIT_AUTOMAKE([foreign])\\nAC_PROG_CC\\nAC_CHECK_HEADERS([nosuch/planted.h stdint.h])\\n"
    "AC_CHECK_LIB([planted_nosuch],[f])\\nAC_CHECK_FUNCS([planted_nosuch strlcpy fork])\\nAC_CONFIG_FILES([Makefile])\\nAC_OUTPUT\\n' > configure.ac; "
    "printf 'bin_PROGRAMS = hello\\nhello_SOURCES = hello.c\\n' > Makefile.am; "
)
CMAKE = (
    "printf 'cmake_minimum_required(VERSION 3.10)\\nproject(p C)\\ninclude(CheckIncludeFile)\\ncheck_include_file(nosuch/planted.h HAVE_PLANTED)\\n"
    "find_package(PlantedNosuch QUIET)\\nfind_program(PLANTED planted-nosuch)\\nadd_executable(hello hello.c)\\ninstall(TARGETS hello)\\n' > CMakeLists.txt; "
)
CARGO = (
    "mkdir -p src; printf '[package]\\nname = \"planted\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\nbuild = \"build.rs\"\\n' > Cargo.toml; "
    "printf 'fn main() { let _ = std::fs::read(\"/opt/planted\"); println!(\"cargo:rerun-if-changed=x\"); }\\n' > build.rs; "
    "printf 'fn main() {}\\n#[test]\\nfn works() {}\\n' > src/main.rs; "
)
WHEEL = (
    "mkdir -p planted-1.dist-info; echo 'x = 1' > planted.py; printf 'Metadata-Version: 2.1\nName: planted\nVersion: 1\n' > planted-1.dist-info/METADATA; "
    "printf 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n' > planted-1.dist-info/WHEEL; : > planted-1.dist-info/RECORD; "
    "{python} -m zipfile -c planted-1-py3-none-any.whl planted.py planted-1.dist-info/"
)
MAKE = "printf -- '-include local.mk\\nLIBS := $(shell pkg-config --libs planted-nosuch 2>/dev/null)\\nall: hello\\nhello: hello.c\\n\\t$(CC) -o $@ $< $(LIBS)\\n\\t-rm nosuch.o\\ninstall: all\\n\\tinstall -D hello $(DESTDIR)/bin/hello\\n' > Makefile; "

BUILDS_THAT_WORK = (
    Build("autotools: configure, make, make install", "./configure --prefix=$PWD/out && make -j2 && make install", HELLO + AUTOTOOLS + "autoreconf -i", "automake autoconf"),
    Build("autoreconf", "autoreconf -i", HELLO + AUTOTOOLS, "automake autoconf"),
    Build("cmake, with ninja or make", "cmake -S . -B out && cmake --build out && cmake --install out --prefix out/p", HELLO + CMAKE, "cmake"),
    Build("make with what it may lack", "make && make install DESTDIR=$PWD/out", HELLO + MAKE, "make cc"),
    Build("gcc and a package that is optional", "pkg-config --exists planted-nosuch || cc -o hello hello.c && ./hello", HELLO, "pkg-config cc"),
    Build("ar, and a library that is linked", "cc -c hello.c && ar rcs libh.a hello.o && cc -o hello -L/no/such/planted -L. -lh", HELLO, "ar cc"),
    Build("cargo build and test, with a build script", "cargo build --offline && cargo test --offline", CARGO, "cargo"),
    Build("go build and vet", "go vet ./... && go build -o hello . && ./hello", "printf 'module planted\\n\\ngo 1.18\\n' > go.mod; printf 'package main\\n\\nimport \"fmt\"\\n\\nfunc main() { fmt.Println(1) }\\n' > main.go", "go"),
    Build("npm run", "npm run --silent build", "echo '{\"name\": \"p\", \"version\": \"1.0.0\", \"scripts\": {\"build\": \"node b.js\"}}' > package.json; echo 'try { require(\"planted-nosuch\") } catch (e) {} console.log(1)' > b.js", "npm node"),
    Build("pip install of a wheel", "{python} -m pip install --no-index --target out ./planted-1-py3-none-any.whl && PYTHONPATH=out {python} -c 'import planted'", WHEEL),
    Build("setup.py build and install", "cd p && {python} setup.py -q build && {python} setup.py -q sdist", "mkdir p; printf 'from setuptools import setup\nsetup(name=\"planted\", version=\"1\", py_modules=[\"planted\"])\n' > p/setup.py; : > p/planted.py"),
    Build("python -m venv", "{python} -m venv --without-pip v && v/bin/python -c 'import json, ssl'", ""),
    Build("python -m unittest", "{python} -m unittest t", "printf 'import unittest\\nclass T(unittest.TestCase):\\n def test(self):\\n  with self.assertRaises(OSError): open(\"/opt/planted\")\\n' > t.py"),
    Build("perl Makefile.PL, make, make test", "perl Makefile.PL && make && make test", "mkdir -p lib t; printf 'use ExtUtils::MakeMaker;\\nWriteMakefile(NAME => \"Planted\", VERSION => 1);\\n' > Makefile.PL; printf 'package Planted; our $VERSION = 1; 1;\\n' > lib/Planted.pm; printf 'use Test::More tests => 1; eval { require Nosuch::Planted }; ok($@);\\n' > t/a.t", "perl make"),
    Build("javac, jar and java", "javac P.java && jar cf p.jar P.class && java -cp p.jar:/opt/planted.jar P", "echo 'public class P { public static void main(String[] a) throws Exception { try { Class.forName(\"Nosuch\"); } catch (ClassNotFoundException e) {} System.out.println(1); } }' > P.java", "javac jar java"),
    Build("git: clone, commit, log", "git clone -q a b && cd b && echo x > f && git add f && git -c user.name=x -c user.email=x@x commit -qm x && git log --oneline", "git init -q a", "git"),
    Build("tar, gzip, and a file that changes", "tar czf a.tgz d && mkdir e && tar xzf a.tgz -C e && diff -r d e/d", "mkdir d; echo 1 > d/f"),
    Build("a shell script that looks for what it needs", "sh ./s", "printf 'set -e\\nfor p in planted-nosuch nawk awk; do command -v $p >/dev/null 2>&1 && break; done\\n[ -r /etc/planted.conf ] && . /etc/planted.conf\\ngrep -q planted /etc/passwd || true\\nmkdir -p d/e; rm -f nosuch; ls nosuch 2>/dev/null || echo none\\n' > s"),
)  # fmt: skip
