"""Measures what a password and TLS cost: the time of a connection and the rate of a small query, each way to log in beside trust.

    python bench/auth_cost.py                                  15 rounds of 5 s for each: about 10 minutes
    python bench/auth_cost.py --rounds 1 --seconds 1           does everything work?

pgbench (-S, one client, over the loopback) runs in each round once for every way, in an order drawn at random: with one connection for
all transactions, and with a connection for each (-C). A way's figure is divided by that of trust without TLS of the same round; the
ratio over the rounds has a 95 % interval by signed ranks. The server must be built with TLS (--pg-bin names another); openssl makes its
certificate. Output: JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.lab.signed_rank import signed_rank_ratio
from record import read_environment

WAYS = {
    "trust": ("trusted", "disable"),
    "scram": ("scrammed", "disable"),
    "trust, TLS": ("trusted", "require"),
    "scram, TLS": ("scrammed", "require"),
}
PLAIN = "trust"
FIGURES = ("tps", "connect_tps", "connect_ms")
SECRET = "not a secret: the server lives for this bench"
SETTINGS = {"fsync": False, "shared_buffers": "256MB", "autovacuum": False, "max_wal_size": "8GB"}
SCALE = 10


def prepare(server: PrivateServer, bin_dir: Path) -> None:
    """Roles, rules, a certificate, and the tables of pgbench."""
    files = [server.data_dir / name for name in ("server.key", "server.crt")]
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost", "-keyout", files[0], "-out", files[1]]
    subprocess.run(openssl, check=True, capture_output=True)
    owner = server.data_dir.stat()
    for file in files:
        os.chown(file, owner.st_uid, owner.st_gid)
        file.chmod(0o600)
    rules = server.data_dir / "pg_hba.conf"
    lines = ["host all trusted 127.0.0.1/32 trust", "host all scrammed 127.0.0.1/32 scram-sha-256"]
    rules.write_text("\n".join(lines) + "\n" + rules.read_text())
    with psycopg.connect(server.dsn, autocommit=True) as db:
        db.execute("set password_encryption = 'scram-sha-256'")
        for role in ("trusted", "scrammed"):
            db.execute(f"create role {role} login superuser password '{SECRET}'")
        db.execute("alter system set ssl = on")
    server.stop()
    server.start()
    tables = [bin_dir / "pgbench", "-i", "-q", "-s", str(SCALE), server.dsn]
    subprocess.run(tables, check=True, capture_output=True)


def trial(server: PrivateServer, bin_dir: Path, way: str, seconds: int) -> dict[str, float]:
    user, sslmode = WAYS[way]
    dsn = f"host=127.0.0.1 port={server.port} user={user} dbname=postgres sslmode={sslmode} gssencmode=disable"
    environment = os.environ | {"PGPASSWORD": SECRET}

    def run(*options: str) -> str:
        command = [bin_dir / "pgbench", "-S", "-n", "-c", "1", "-T", str(seconds), *options, dsn]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout

    kept, anew = run(), run("-C")
    return {
        "tps": _figure(r"tps = ([\d.]+)", kept),
        "connect_tps": _figure(r"tps = ([\d.]+)", anew),
        "connect_ms": _figure(r"average connection time = ([\d.]+) ms", anew),
    }


def _figure(pattern: str, said: str) -> float:
    found = re.search(pattern, said)
    if not found:
        raise RuntimeError(f"pgbench said: {said}")
    return float(found[1])


def summarised(rounds: list[dict[str, dict[str, float]]], rng: random.Random) -> list[dict[str, Any]]:
    rows = []
    for way in WAYS:
        row: dict[str, Any] = {"way": way}
        for figure in FIGURES:
            ratio = signed_rank_ratio([(each[PLAIN][figure], each[way][figure]) for each in rounds])
            row[figure] = {"median": median(each[way][figure] for each in rounds), "ratio": vars(ratio)}
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=int, default=5, help="of each run of pgbench")
    parser.add_argument("--pg-bin", help="folder with postgres, initdb and pgbench")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, environment, binaries = random.Random(options.seed), read_environment(), find_binaries(options.pg_bin)
    rounds: list[dict[str, dict[str, float]]] = []
    with PrivateServer(binaries.bin_dir, settings=SETTINGS, loopback=True) as server:
        prepare(server, binaries.bin_dir)
        for number in range(options.rounds):
            found = {way: trial(server, binaries.bin_dir, way, options.seconds) for way in rng.sample(list(WAYS), len(WAYS))}
            rounds.append(found)
            for way in WAYS:
                print(f"round {number + 1}, {way}: {found[way]}", file=sys.stderr)
    result = {"rows": summarised(rounds, rng), "rounds": rounds}
    json.dump({"environment": environment, "options": vars(options), "result": result}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
