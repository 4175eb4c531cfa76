"""The histograms of `leadline load run` beside the packets of the same statements."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conftest import fetched_or_skip
from leadline.api import open_capture
from leadline.engines.postgres.server import PrivateServer
from leadline.probes.wire import WireProbe
from live import wire_rows
from load_runs import load, measured
from logins import SECRET, make_users

pytestmark = [pytest.mark.live, pytest.mark.skipif(os.geteuid() != 0, reason="capturing packets needs root")]

# Most statements take 60 ms, one in ten takes 200 ms: what the client adds is far below 2 % of them, also on a busy host.
SCRIPT = r"\set n random(1, 10)" "\nselect pg_sleep(case when :n = 1 then 0.2 else 0.06 end);\n"
SHORTEST_NS = 50_000_000  # what else the client asks is faster
# The statements with this share of all below them, in both.
SHARES = (0.1, 0.5, 0.8, 0.95, 0.98)


def test_statements_of_the_load_are_those_of_the_packets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "script.sql").write_text(SCRIPT)
    with PrivateServer(fetched_or_skip(16).bin_dir, loopback=True) as server:
        make_users(server)
        monkeypatch.setenv("PGPASSWORD", SECRET)
        probe = WireProbe(tmp_path, "lo", [server.port])
        probe.start()
        dsn = f"host=127.0.0.1 port={server.port} user=scrammed dbname=postgres sslmode=disable"
        words = ("--script", tmp_path / "script.sql", "--clients", 8, "--for", "3s", "--warm-up", "0s", "-o", tmp_path / "load")
        outcome, found = load(dsn, *words)
        assert probe.stop()["lost"] == 0
    assert outcome == 0
    done = measured(found)["done"]
    statements = [row for row in wire_rows(tmp_path, "wire_roundtrip") if row["purpose"] == "simple query" and row["last_ns"] > SHORTEST_NS]
    packets = sorted(row["last_ns"] for row in statements)
    with open_capture(found["capture"]) as capture:
        buckets = capture.sql("select low_ns, high_ns, count from load_bucket where kind = 'statement' order by low_ns").rows()
    assert len(packets) == done == sum(bucket["count"] for bucket in buckets)
    clients = [bucket["high_ns"] for bucket in buckets for _ in range(bucket["count"])]
    # The client begins before its packet leaves and ends after the last one came; a bucket is 0.1 % wide.
    assert all(client >= packet * 0.999 for client, packet in zip(clients, packets))
    for share in SHARES:
        rank = int(share * done)
        assert clients[rank] == pytest.approx(packets[rank], rel=0.02), share
