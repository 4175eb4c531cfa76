"""Output as it comes: resumed by byte offset, byte for byte, for those who may see it."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from leadline.server.read.output import Follow
from leadline.server.web import live
from leadline.server.web.live import PIECE, as_bytes
from serving import Client, Served, serving, wait_until


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("live")) as served:
        yield served


def begin(client: Client, name: str, script: str, **more: Any) -> str:
    """Starts a Python program as a run; its id once it runs."""
    template = client.call("PUT", f"/projects/main/templates/{name}", command=f"{sys.executable} -u -c {shlex.quote(script)}", **more).json[
        "template"
    ]
    uid = str(client.call("POST", f"/templates/{template}/start").json["run"])
    wait_until(lambda: client.get(f"/runs/{uid}.json").json["run"]["status"] != "queued", "the run")
    return uid


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    """Events of a stream until it ends; a break ends it too."""
    event: dict[str, str] = {}
    try:
        while line := answer.readline():
            text = line.decode().rstrip("\n")
            if not text and event:
                yield event
                event = {}
            elif text and not text.startswith(":"):
                name, _, value = text.partition(": ")
                event[name] = value
    except (OSError, http.client.HTTPException):
        return


def bytes_of(event: dict[str, str]) -> bytes:
    data = json.loads(event["data"])
    return data["text"].encode() if "text" in data else base64.b64decode(data["base64"])


NUMBERS = """
import sys, time
for n in range(400):
    sys.stdout.write(f"line {n} " + "x" * (n % 50) + chr(10))
    sys.stdout.flush()
    time.sleep(0.005)
"""
ODD = """
import sys, time
for piece in (b"no end", b" yet", b"\\n", b"\\xff\\xfe raw\\n", b"\\xc5", b"\\xbe\\xc5\\xa5", b"\\n\\n", b"L" * 200000,
              b"\\r\\n", b"\\xe2\\x82"):
    sys.stdout.buffer.write(piece)
    sys.stdout.buffer.flush()
    time.sleep(0.03)
"""


@pytest.mark.parametrize("script", [NUMBERS, ODD], ids=["numbers", "odd bytes"])
def test_what_is_received_is_the_file_byte_for_byte(served: Served, script: str) -> None:
    client = served.client()
    uid = begin(client, "bytes", script)
    got = list(events(client.stream(f"/api/v1/runs/{uid}/stream")))
    file = (served.book / "logs" / f"{uid}.log").read_bytes()
    assert b"".join(bytes_of(event) for event in got[:-1]) == file
    assert (got[-1]["event"], json.loads(got[-1]["data"])) == ("done", {"status": "ok"})
    assert client.get(f"/api/v1/runs/{uid}/output").body == file
    assert client.get(f"/api/v1/runs/{uid}/output?follow=true").body == file
    packed = served.book / "logs" / f"{uid}.log.gz"
    wait_until(lambda: served.do("book", "compress", "--older", "0s") and packed.exists(), "the end of what writes the log")
    assert not packed.with_suffix("").exists()
    assert client.get(f"/api/v1/runs/{uid}/output").body == file
    assert b"".join(bytes_of(event) for event in events(client.stream(f"/api/v1/runs/{uid}/stream")) if "id" in event) == file
    assert client.call("GET", f"/runs/{uid}/log?from=-100").json["size"] == len(file)
    assert client.get(f"/runs/{uid}").status == 200


def test_the_id_of_an_event_is_where_the_next_begins(served: Served) -> None:
    client = served.client()
    uid = begin(client, "ids", NUMBERS)
    at = 0
    for event in events(client.stream(f"/api/v1/runs/{uid}/stream")):
        if "id" in event:
            at += len(bytes_of(event))
            assert int(event["id"]) == at
    assert at == (served.book / "logs" / f"{uid}.log").stat().st_size


def test_nothing_is_lost_when_server_and_client_break_off_again_and_again(tmp_path_factory: pytest.TempPathFactory) -> None:
    with serving(tmp_path_factory.mktemp("breaks")) as served:
        uid = begin(served.client(), "long", NUMBERS.replace("400", "2500"))
        got, last, breaks, done = b"", "0", 0, False
        while not done:
            answer = served.client().stream(f"/api/v1/runs/{uid}/stream", Last_Event_ID=last)
            for event in events(answer):
                if event.get("event") == "done":
                    done = True
                    break
                got, last = got + bytes_of(event), event["id"]
                if breaks < 20:
                    breaks += 1
                    if breaks % 5 == 0:
                        served.stop(signal.SIGKILL)
                        served.start()
                    break
            answer.close()
        assert breaks == 20
        assert got == (served.book / "logs" / f"{uid}.log").read_bytes()
        assert got.count(b"\n") == 2500


def test_a_page_of_the_log_says_where_the_next_begins(served: Served) -> None:
    client = served.client()
    uid = begin(client, "pages", "print('\\n'.join(f'line {n}' for n in range(5000)))")
    wait_until(lambda: client.get(f"/runs/{uid}.json").json["run"]["status"] == "ok", "the run")
    at, text = 0, ""
    while (page := client.call("GET", f"/runs/{uid}/log?from={at}&bytes=1000").json)["text"]:
        assert page["text"].endswith("\n")
        at, text = page["next"], text + page["text"]
    assert text == "".join(f"line {n}\n" for n in range(5000))
    tail = client.call("GET", f"/runs/{uid}/log?from=-100").json
    assert tail["text"] == text[-len(tail["text"]) :]
    assert tail["text"].startswith("line 49")
    assert client.call("GET", f"/runs/{uid}/log?from={10**9}").json["text"] == ""


def test_parts_for_pages_keep_colours_and_nothing_else(served: Served) -> None:
    client = served.client()
    uid = begin(client, "colours", "print('\\x1b[1;31mred\\x1b[0m \\x1b[2Jplain \\x1b]0;title\\x07<b>')")
    got = list(events(client.stream(f"/api/v1/runs/{uid}/stream?form=parts")))
    assert json.loads(got[0]["data"]) == {"parts": [[["b c-red", "red"], ["", " "], ["", "plain "], ["", "<b>"]], []]}


def test_a_hundred_readers_of_one_run_lose_nothing(served: Served) -> None:
    from concurrent.futures import ThreadPoolExecutor

    client = served.client()
    uid = begin(client, "readers", NUMBERS)
    with ThreadPoolExecutor(100) as pool:
        got = list(pool.map(lambda _: client.get(f"/api/v1/runs/{uid}/output?follow=true").body, range(100)))
    file = (served.book / "logs" / f"{uid}.log").read_bytes()
    assert [len(one) for one in got if one != file] == []


def test_twenty_runs_at_once_lose_no_line(served: Served) -> None:
    client = served.client()
    script = "import sys, time\nfor n in range(300): print(n, flush=True)\ntime.sleep(1)"
    template = client.call(
        "PUT", "/projects/main/templates/twenty", command=f"{sys.executable} -u -c {shlex.quote(script)}", at_once=20
    ).json["template"]  # fmt: skip
    asked = [client.call("POST", f"/templates/{template}/start").json["run"] for _ in range(20)]
    wait_until(lambda: len(client.get(f"/runs.json?template={template}&status=ok").json["runs"]) == 20, "all of them", patience_s=120)
    whole = "".join(f"{n}\n" for n in range(300))
    assert [uid for uid in asked if client.get(f"/api/v1/runs/{uid}/output").text != whole] == []


ENDS_WITHIN_S = 5
LOST: dict[str, Callable[[Served, Client], object]] = {
    "token revoked": lambda served, client: served.do("token", "revoke", client.token[3:13]),
    "user disabled": lambda served, client: served.do("user", "disable", "eve"),
    "role taken": lambda served, client: served.do("user", "role", "main", "eve", "--role", "none"),
    "logged out": lambda served, client: client.form("/logout"),
}


@pytest.mark.parametrize("how", LOST)
def test_a_stream_ends_when_the_right_ends(tmp_path_factory: pytest.TempPathFactory, how: str) -> None:
    with serving(tmp_path_factory.mktemp("revoked")) as served:
        uid = begin(served.client(), "endless", "import time\nprint('begun')\ntime.sleep(60)")
        served.user("ann", "--admin")
        served.user("eve")
        served.do("user", "role", "main", "eve", "--role", "viewer")
        client = served.client() if how == "logged out" else served.client(token=served.token_of("eve"))
        if how == "logged out":
            assert client.log_in("eve").status == 303
        stream = events(client.stream(f"/api/v1/runs/{uid}/stream"))
        assert bytes_of(next(stream)) == b"begun\n"
        LOST[how](served, client)
        began = time.monotonic()
        assert json.loads(next(stream)["data"]) == {"status": "refused"}
        assert time.monotonic() - began < ENDS_WITHIN_S
        assert next(stream, None) is None
        served.do("template", "cancel", uid)


def test_a_right_that_has_ended_ends_a_stream_that_never_catches_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert live.RIGHTS_S < ENDS_WITHIN_S - 1
    monkeypatch.setattr(live, "RIGHTS_S", 0.0)
    place = Place(tmp_path / "book")
    place.make()
    place.log_of("0" * 12).write_bytes(b"y\n" * (20 * PIECE))
    asked = list[int]()

    async def may_see() -> str | None:
        asked.append(len(asked))
        return "running" if len(asked) < 3 else None

    async def read() -> list[object]:
        return [piece async for piece in live.pieces(Follow("0" * 12, place, 0, True, False), may_see)]

    received = asyncio.run(read())
    assert (len(received), received[-1]) == (3, "refused")


def test_a_reader_that_does_not_read_takes_no_memory(served: Served) -> None:
    client = served.client()
    uid = begin(client, "flood", "import sys\nfor n in range(600): sys.stdout.write('y' * 99999 + chr(10))")
    wait_until(lambda: client.get(f"/runs/{uid}.json").json["run"]["status"] == "ok", "the run")
    assert served.process is not None
    status = Path(f"/proc/{served.process.pid}/status")

    def rss() -> int:
        return int(next(line for line in status.read_text().splitlines() if line.startswith("VmRSS")).split()[1])

    before = rss()
    slow = [client.stream(f"/api/v1/runs/{uid}/stream") for _ in range(10)]
    assert client.get(f"/api/v1/runs/{uid}/output").body.count(b"\n") == 600
    assert rss() - before < 40_000  # of 10 readers of 60 MB each
    for one in slow:
        one.close()


@pytest.mark.parametrize(("in_parts", "pieces"), [(False, 40), (True, 320)])
def test_others_are_served_between_the_pieces_of_a_long_output(tmp_path: Path, in_parts: bool, pieces: int) -> None:
    """A send to a client that is gone returns at once, and so does one to a client that keeps up."""
    place = Place(tmp_path / "book")
    recorder = Recorder(place)
    recorder.begin("command", "long", ["yes"])
    place.log_of(recorder.uid).write_bytes(b"y\n" * (20 * PIECE))
    recorder.end(0)

    async def read() -> list[int]:
        others: list[int] = []

        async def other() -> None:
            while True:
                others.append(len(received))
                await asyncio.sleep(0)

        async def ended() -> str:
            return "ok"

        received: list[bytes] = []
        task = asyncio.create_task(other())
        async for piece in as_bytes(Follow(recorder.uid, place, 0, False, in_parts), ended):
            received.append(piece)
        task.cancel()
        assert len(received) == pieces
        return others

    assert asyncio.run(read())[:pieces] == list(range(1, pieces + 1))


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""
