"""Many who look, and much to look at: nothing is lost, and memory is bounded.

LEADLINE_LARGE=1 makes the large log of lines, all of which are then read; by default it is a sparse file with lines in a few places.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from serving import Served, serving, wait_until
from test_live import NUMBERS, begin, bytes_of, events

VIEWERS = 100
SIZE = 1_200_000_000
LARGE = os.environ.get("LEADLINE_LARGE") == "1"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("many")) as served:
        yield served


def rss_kb(served: Served) -> int:
    assert served.process is not None
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def test_a_hundred_streams_and_twenty_runs_at_once_in_bounded_memory(served: Served) -> None:
    client = served.client()
    template = client.call("PUT", "/projects/main/templates/twenty", command="seq 1 2000", at_once=20).json["template"]
    uid = begin(client, "watched", NUMBERS.replace("400", "1000"))
    for _ in range(3):
        client.get("/runs")
    before = rss_kb(served)

    def watch(_n: int) -> bytes:
        return b"".join(bytes_of(event) for event in events(served.client().stream(f"/api/v1/runs/{uid}/stream")) if "id" in event)

    with ThreadPoolExecutor(VIEWERS) as threads:
        watching = threads.map(watch, range(VIEWERS))
        asked = [client.call("POST", f"/templates/{template}/start").json["run"] for _ in range(20)]
        got = list(watching)
    file = (served.book / "logs" / f"{uid}.log").read_bytes()
    assert file.count(b"\n") == 1000
    assert [len(one) for one in got if one != file] == []
    wait_until(lambda: len(client.get(f"/runs.json?template={template}&status=ok").json["runs"]) == 20, "all runs", patience_s=120)
    whole = "".join(f"{n}\n" for n in range(1, 2001))
    assert [one for one in asked if client.get(f"/api/v1/runs/{one}/output").text != whole] == []
    assert rss_kb(served) - before < 80_000


@pytest.fixture(scope="module")
def large(served: Served) -> str:
    """A run with a log of more than a gigabyte."""
    recorder = Recorder(Place(served.book))
    recorder.begin("command", "large", ["yes"])
    with open(served.book / "logs" / f"{recorder.uid}.log", "wb") as log:
        if LARGE:
            block = b"".join(b"line %07d %s\n" % (n, b"x" * 83) for n in range(10_000))
            for _ in range(SIZE // len(block)):
                log.write(block)
        else:
            for at in (0, SIZE // 2, SIZE - 100_000):
                log.seek(at)
                log.write(b"\n" + b"".join(b"line %07d %s\n" % (n, b"x" * 83) for n in range(900)))
            log.truncate(SIZE)
    recorder.end(0)
    uid: str = recorder.uid
    wait_until(lambda: served.client().get(f"/runs/{uid}.json").status == 200, "the run")
    return uid


def test_a_log_of_a_gigabyte_is_paged(served: Served, large: str) -> None:
    client = served.client()
    client.get("/runs")
    before, began = rss_kb(served), time.process_time()
    size = client.call("GET", f"/runs/{large}/log?bytes=10").json["size"]
    assert size > 1_000_000_000
    for at in (0, size // 2 + 1, size - 99_000):
        page = client.call("GET", f"/runs/{large}/log?from={at}").json
        assert 0 < page["next"] - page["from"] <= 64 << 10
        assert "ine 000" in page["text"]
    tail = client.call("GET", f"/runs/{large}/log?from=-2000").json
    assert tail["next"] == size
    assert client.get(f"/runs/{large}").status == 200
    assert client.call("GET", f"/search?text={'not-there'}").json["all_output_searched"] is False
    assert rss_kb(served) - before < 60_000
    assert time.process_time() - began < 10


def test_a_download_of_a_gigabyte_takes_no_memory(served: Served, large: str) -> None:
    before, received = rss_kb(served), 0
    answer = served.client().stream(f"/api/v1/runs/{large}/output")
    while piece := answer.read(1 << 20):
        received += len(piece)
        if not LARGE and received > 50_000_000:
            break
    answer.close()
    assert rss_kb(served) - before < 60_000
    if LARGE:
        assert received == (served.book / "logs" / f"{large}.log").stat().st_size


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""
