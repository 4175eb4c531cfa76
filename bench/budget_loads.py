"""Measures whether rates lie in the intervals of `leadline net budget`, for loads of several kinds.

    python bench/budget_loads.py                                 3 rounds of 5 s of each load at each round-trip time: about 12 minutes
    python bench/budget_loads.py --rounds 1 --seconds 2 --loads script     does everything work?
    python bench/budget_loads.py --orm-python .../bin/python --loads orm   with a Python that has SQLAlchemy and psycopg

In each round, each load runs once without a proxy, where its packets are captured, and once through `leadline net delay` at each round-trip
time, in an order drawn at random. From the capture the rate at the other round-trip times is predicted, with its interval. A round trip is
what was captured on this host plus what the proxy says that it added, in the mean. `inside` counts the rates in their interval.

Output: JSON, and a table on stderr.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from leadline._core.net import Delay
from leadline.capture.reader import open_capture
from leadline.engines.postgres.server import PrivateServer, find_binaries
from leadline.net.budget import Budget, budgets
from leadline.probes.wire import record
from record import read_environment

RTTS_MS = (0.5, 2.0, 10.0, 40.0)
SETTINGS = {"fsync": False, "shared_buffers": "256MB", "autovacuum": False, "max_wal_size": "8GB"}
SPARE_S = 2.0  # for the client to begin and end within the capture
VARIABLES = "\\set aid random(1, 100000)\n\\set delta random(-5000, 5000)\n"
UPDATE = "UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n"
SELECT = "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n"
INSERT = "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (1, 1, :aid, :delta, CURRENT_TIMESTAMP);\n"
SCRIPTS = {
    "script": VARIABLES + "BEGIN;\n" + UPDATE + SELECT + INSERT + "END;\n",
    "pipeline": VARIABLES + "\\startpipeline\nBEGIN;\n" + UPDATE + SELECT + "END;\n\\endpipeline\n" + SELECT,
}
PGBENCH = {  # words of pgbench for each load
    "script": ["-f", "script"], "pipeline": ["-M", "extended", "-f", "pipeline"], "script x 8": ["-f", "script", "-c", "8", "-j", "2"],
    "connect": ["-C", "-S"],
}  # fmt: skip
SERVER_TRANSACTIONS = {"pipeline": 2}  # in one of pgbench
ORM = """
import random, sys, time
WARM = 10  # the driver prepares statements that it has sent five times: more round trips until then
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

class Base(DeclarativeBase):
    pass

class Account(Base):
    __tablename__ = "pgbench_accounts"
    aid: Mapped[int] = mapped_column(primary_key=True)
    bid: Mapped[int]
    abalance: Mapped[int]

engine = create_engine(sys.argv[1])
number, began = -WARM, time.monotonic()
while number < 0 or time.monotonic() < began + float(sys.argv[2]):
    if number == 0:
        began = time.monotonic()
    with Session(engine) as session:
        account = session.get(Account, random.randint(1, 100000))
        account.abalance += 1
        session.get(Account, random.randint(1, 100000))
        session.commit()
    number += 1
print(f"tps = {number / (time.monotonic() - began):f}")
"""


def words(load: str, dsn: str, seconds: float, bin_dir: Path, folder: Path, orm_python: str) -> list[str]:
    if load == "orm":
        user, port, database = (re.search(rf"{name}=(\S+)", dsn)[1] for name in ("user", "port", "dbname"))  # type: ignore[index]
        return [orm_python, str(folder / "orm.py"), f"postgresql+psycopg://{user}@127.0.0.1:{port}/{database}", str(seconds)]
    given = [str(folder / word) if word in SCRIPTS else word for word in PGBENCH[load]]
    return [str(bin_dir / "pgbench"), "-n", *given, "-T", str(round(seconds)), dsn]


def trial(server: PrivateServer, rtt_ms: float, out: Path | None, seconds: float, command: Any) -> tuple[float, float]:
    """The rate that the client says, and the round-trip time that the proxy added. out: no proxy, but a capture."""
    proxy = None if out is not None else Delay("127.0.0.1", 0, "127.0.0.1", server.port, rtt_s=rtt_ms / 1000)
    port = server.port if proxy is None else proxy.address()[1]
    dsn = server.loopback_dsn.replace(f"port={server.port}", f"port={port}")
    load = subprocess.Popen(command(dsn), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if out is not None:
        record("lo", [port], for_s=seconds + SPARE_S, out=out)
    said, complaint = load.communicate()
    found = re.search(r"tps = ([\d.]+)", said)
    if not found:
        raise RuntimeError(f"the client said: {said} {complaint}")
    if proxy is None:
        return float(found[1]), 0.0
    told = json.loads(proxy.stop())
    return float(found[1]), sum(told[way]["added"]["mean_ns"] for way in ("to_server", "to_client")) / 1e6


def predicted(capture_dir: Path, added_ms: list[float]) -> Budget:
    with closing(open_capture(capture_dir)) as capture:
        [now] = budgets(capture, []).budgets
        [found] = budgets(capture, [now.rtt_ms + added for added in added_ms]).budgets
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5, help="of each run")
    parser.add_argument("--loads", default="script,pipeline,script x 8,connect", help="also orm")
    parser.add_argument("--orm-python", default=sys.executable)
    parser.add_argument("--pg-bin", help="folder with postgres, initdb and pgbench")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng, environment, binaries = random.Random(options.seed), read_environment(), find_binaries(options.pg_bin)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, PrivateServer(binaries.bin_dir, settings=SETTINGS, loopback=True) as server:
        folder = Path(name)
        for script, text in (*SCRIPTS.items(), ("orm.py", ORM)):
            (folder / script).write_text(text)
        folder.chmod(0o755)
        subprocess.run([binaries.bin_dir / "pgbench", "-i", "-q", "-s", "1", server.dsn], check=True, capture_output=True)
        for round_ in range(options.rounds):
            for load in options.loads.split(","):
                out, seen = folder / f"{round_}-{load}.leadline", {}
                for rtt in rng.sample((0.0, *RTTS_MS), len(RTTS_MS) + 1):

                    def command(dsn: str, load: str = load) -> list[str]:
                        return words(load, dsn, options.seconds, binaries.bin_dir, folder, options.orm_python)

                    seen[rtt] = trial(server, rtt, None if rtt else out, options.seconds, command)
                found = predicted(out, [seen[rtt][1] for rtt in RTTS_MS])
                for rtt, at in zip(RTTS_MS, found.what_if):
                    measured = seen[rtt][0] * SERVER_TRANSACTIONS.get(load, 1)
                    assert at.per_second.low is not None and at.per_second.high is not None
                    rows.append(
                        {"round": round_, "load": load, "asked_ms": rtt, "rtt_ms": at.rtt_ms, "trips": found.trips_each.value,
                         "setup_trips": found.setup_trips_each, "measured": measured, "predicted": at.per_second.value,
                         "low": at.per_second.low, "high": at.per_second.high,
                         "inside": at.per_second.low <= measured <= at.per_second.high}
                    )  # fmt: skip
                    print(json.dumps(rows[-1]), file=sys.stderr)
    for load in options.loads.split(","):
        for rtt in RTTS_MS:
            of = [row for row in rows if (row["load"], row["asked_ms"]) == (load, rtt)]
            ratio = median(row["predicted"] / row["measured"] for row in of)
            width = median(row["high"] / row["low"] for row in of)
            text = f"{load:12} {rtt:5g} ms: predicted by measured {ratio:.3f}, high by low {width:.3f}, inside"
            print(text, f"{sum(row['inside'] for row in of)} of {len(of)}", file=sys.stderr)
    json.dump({"environment": environment, "options": vars(options), "result": rows}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
