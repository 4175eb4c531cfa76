"""SIGKILL at moments drawn by a seed: of the server, and of what watches runs that are followed over the web.

LEADLINE_KILLS is how many moments; a few by default, 100 for the whole.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import shlex
import signal
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from leadline.book.place import VARIABLE, Place
from leadline.book.store import Store
from leadline.server.launch.launch_queue import KILLED_MEANWHILE
from serving import Client, Served, serving, wait_until
from test_live import bytes_of, events

KILLS = int(os.environ.get("LEADLINE_KILLS", "6"))
PATIENCE_S = 120 + 6 * KILLS  # five runs are asked for between two kills, and a busy machine starts three a second
PRINTS = """
import os, sys, time
n = 0
while not os.path.exists({go!r}):
    n += 1
    sys.stdout.write(f"line {{n}} " + "x" * (n % 90) + chr(10))
    sys.stdout.flush()
    time.sleep(0.002)
print("over", n)
"""
pytestmark = pytest.mark.timeout(300 + 20 * KILLS)
BROKEN = (OSError, http.client.HTTPException, ValueError)


def program(script: str) -> str:
    return f"{sys.executable} -u -c {shlex.quote(script)}"


def save(client: Client, name: str, command: str) -> str:
    return str(client.call("PUT", f"/projects/main/templates/{name}", command=command, at_once=100).json["template"])


class Busy(threading.Thread):
    """Changes things through the server all the time, and remembers what was acknowledged."""

    def __init__(self, served: Served, run: str, template: str) -> None:
        super().__init__(daemon=True)
        self.served, self.run_, self.template = served, run, template
        self.over = threading.Event()
        self.labels: dict[str, str] = {}
        self.started: list[str] = []

    def run(self) -> None:
        number = 0
        while not self.over.is_set():
            number += 1
            try:
                client = self.served.client()
                if client.call("PUT", f"/runs/{self.run_}/labels/k{number % 50}", value=str(number)).status == 200:
                    self.labels[f"k{number % 50}"] = str(number)
                if number % 4 == 0:
                    answer = client.call("POST", f"/templates/{self.template}/start")
                    if answer.status == 200:
                        self.started.append(answer.json["run"])
            except BROKEN:
                time.sleep(0.01)


def test_a_server_killed_at_any_moment(place: Place, tmp_path: Path) -> None:
    """What it acknowledged is there, each run that was asked for runs once and ends, and the stream that is resumed is the file."""
    chance, go = random.Random(11), tmp_path / "go"
    (tmp_path / "serve.err").touch()
    served, store = Served(tmp_path / "book", dict(os.environ) | {VARIABLE: place.variable}), Store(place)
    try:
        served.start()
        client = served.client()
        followed = client.call("POST", f"/templates/{save(client, 'followed', program(PRINTS.format(go=str(go))))}/start").json["run"]
        short = save(client, "short", "echo short")
        wait_until(lambda: client.get(f"/runs/{followed}.json").json["run"]["status"] == "running", "the run")
        busy = Busy(served, followed, short)
        busy.start()
        got, last = b"", "0"

        def receive() -> dict[str, Any] | None:
            """Goes on with the stream until it breaks; how it ended, if it did."""
            nonlocal got, last
            with suppress(*BROKEN):
                for event in events(served.client().stream(f"/api/v1/runs/{followed}/stream", Last_Event_ID=last)):
                    if event.get("event") == "done":
                        return dict(json.loads(event["data"]))
                    got, last = got + bytes_of(event), event["id"]
            return None

        for _ in range(KILLS):
            killer = threading.Timer(chance.uniform(0.0, 0.6), lambda: served.stop(signal.SIGKILL))
            killer.start()
            assert receive() is None
            killer.join()
            served.start()
        busy.over.set()
        busy.join(60)
        go.touch()
        assert receive() == {"status": "ok"}
        file = place.log_of(followed).read_bytes()
        assert got == file
        assert file.endswith(b"over %d\n" % file.count(b"line "))
        # A server that was killed between the claim and the start of a run cannot know what was done of it: that is told, after 30 s.
        wait_until(lambda: open_launches(store) == 0, "what was asked for", patience_s=PATIENCE_S)
        rows = wait_until(lambda: ended(client_of(served)), "the end of all runs", patience_s=PATIENCE_S)
        assert {row["status"] for row in rows} == {"ok"}
        asked = [row["uid"] for row in rows if row["name"] == "short"]
        assert max(Counter(asked).values(), default=1) == 1
        told = {uid: client_of(served).get(f"/runs/{uid}.json").json["run"] for uid in set(busy.started) - set(asked)}
        assert {(run["status"], run["summary"]) for run in told.values()} <= {("refused", KILLED_MEANWHILE)}
        assert len(told) <= KILLS
        run = client_of(served).get(f"/runs/{followed}.json").json["run"]
        # A write whose answer did not come may have been done: the label is then newer than what was acknowledged.
        assert {key for key, value in busy.labels.items() if int(run["labels"][key]) < int(value)} == set()
        for row in rows:
            assert client_of(served).get(f"/runs/{row['uid']}").status == 200
        assert served.do("user", "verify") == {"whole": True, "fault": ""}
        if place.dsn is None:
            assert store.rows("pragma integrity_check") == [{"integrity_check": "ok"}]
        counted = store.rows("select cast(sum(n) as bigint) as n from run_count")
        assert counted == store.rows("select count(*) as n from run")
        assert served.complaints() == ""
    finally:
        served.stop()
        store.close()


def open_launches(store: Store) -> int:
    return int(store.rows("select count(*) as n from launch where status not in ('done', 'refused')")[0]["n"])


def client_of(served: Served) -> Client:
    return served.client()


def ended(client: Client) -> list[dict[str, Any]]:
    """All runs, when none goes on or waits."""
    rows, before = list[dict[str, Any]](), ""
    while True:
        answer = client.call("GET", f"/runs?limit=1000{before}").json
        rows += answer["runs"]
        if answer["waiting"] or any(row["status"] == "running" for row in rows):
            return []
        if answer["next"] is None:
            return rows
        before = f"&before={answer['next']}"


LONG = """
import sys, time
for n in range(300):
    sys.stdout.write(f"line {n} " + "y" * (n % 70) + chr(10))
    sys.stdout.flush()
    time.sleep(0.004)
"""


def test_what_watches_a_run_killed_at_any_moment(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The stream ends, says so, and is the file; a run that cannot end is lost, and one that can is lost or had ended."""
    chance = random.Random(12)
    folder = tmp_path_factory.mktemp("watchers")
    go = folder / "go"
    with serving(folder) as served:
        ends = save(served.client(), "long", program(LONG))
        endless = save(served.client(), "endless", program(PRINTS.format(go=str(go))))

        def once(template: str, after_s: float) -> tuple[str, str, bool]:
            client = served.client()
            uid = client.call("POST", f"/templates/{template}/start").json["run"]
            run = wait_until(lambda: (r := client.get(f"/runs/{uid}.json").json["run"])["status"] != "queued" and r, "the run")
            killer = threading.Timer(after_s, kill, [int(run["pid"])])
            killer.start()
            got, how = b"", ""
            for event in events(client.stream(f"/api/v1/runs/{uid}/stream")):
                if event.get("event") == "done":
                    how = json.loads(event["data"])["status"]
                else:
                    got += bytes_of(event)
            killer.join()
            log = served.book / "logs" / f"{uid}.log"
            return template, how, got == (log.read_bytes() if log.exists() else b"")

        templates = [endless, ends] * ((KILLS + 1) // 2)
        moments = [chance.uniform(0.0, 1.6) for _ in templates]
        with ThreadPoolExecutor(6) as threads:
            done = list(threads.map(once, templates, moments))
        assert [equal for _, _, equal in done] == [True] * len(templates)
        assert {how for template, how, _ in done if template == endless} == {"lost"}
        assert {how for template, how, _ in done if template == ends} <= {"ok", "lost"}
        go.touch()
        assert {run["status"] for run in wait_until(lambda: ended(served.client()), "the end of all")} <= {"ok", "lost"}
        assert served.complaints() == ""


def kill(pid: int) -> None:
    with suppress(ProcessLookupError, FileNotFoundError):  # it has ended
        if b"supervisor" in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)
