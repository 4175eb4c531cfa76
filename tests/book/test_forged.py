"""A spool is input: whatever stands in it, taking it in raises nothing, takes bounded memory, and leaves a store that can be read.

So is a database of Ara that is imported.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import zlib
from types import SimpleNamespace
from typing import Any

import pytest
from books import Open
from leadline.book.ansible.ara import LONGEST_OBJECT, Imported, _Playbook
from leadline.book.ingest import ingest
from leadline.book.place import Place
from leadline.book.query import Filter
from leadline.book.recorder import Recorder
from leadline.book.spool import new_uid
from leadline.book.store import Store

LINES = 1500
KINDS = ("begin", "end", "file", "artifact", "label", "nothing", "", "ansible.playbook", "ansible.play", "ansible.task", "ansible.result",
         "ansible.note", "ansible.stats", "ansible.x", "a.b.c", "experiment.design", "experiment.leg", "experiment.verdict")  # fmt: skip
NAMES = (
    "n", "ts", "kind", "uid", "run_kind", "name", "argv", "labels", "inputs", "facts", "parent", "cwd", "user", "host", "version", "pid",
    "pid_start", "boot", "path", "size", "modified", "hash", "text", "rc", "signal", "summary", "metrics", "lost", "key", "value", "task",
    "play", "result", "content", "status", "part", "hosts", "custom", "artifact_kind", "gone", "tags", "args", "run_name",
    "design", "question", "registered", "seal", "earlier", "number", "side", "leg", "started", "problem", "verdict", "good", "ratio", "low",
    "high", "pairs", "differs", "listing", "log_hash", "log_hashed",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 2**63, -(2**63), 2**64, 1e308, "", "x", "\0", "\ud800", "\u202e", "a" * 5000, [], {}, [None], {"": None},
    {"a": {"b": 1}}, ["a", 1], "1", "ok", "failed", "result", "lost", [[[]]], {"x": "y"}, 10**30, -0.0,
)  # fmt: skip


def forged_line(made: random.Random, uid: str) -> bytes:
    body = {name: made.choice(VALUES) for name in made.sample(NAMES, made.randrange(len(NAMES)))}
    body |= {"kind": made.choice(KINDS), "n": made.choice((1, 2, 3, made.choice(VALUES))), "ts": made.choice((1, made.choice(VALUES)))}
    if made.random() < 0.5:  # a beginning that may be well, but for a few values
        good = {"uid": uid, "run_kind": "command", "name": "n", "argv": ["a"], "cwd": "/", "user": "u", "host": "h", "version": "1",
                "pid": 1, "pid_start": 5, "boot": "b", "kind": made.choice(KINDS)}  # fmt: skip
        body |= {name: value for name, value in good.items() if made.random() < 0.95}
    line = json.dumps(body).encode()
    if made.random() < 0.2:
        at = made.randrange(len(line))
        line = line[:at] + bytes([made.randrange(256)]) + line[at + made.randrange(3) :]
    return line.replace(b"\n", b" ")


@pytest.mark.parametrize("seed", range(2))
def test_forged_events_of_every_kind(place: Place, open_book: Open, seed: int) -> None:
    made = random.Random(seed)
    store = Store(place)
    for _ in range(20):
        uid = new_uid()
        place.spool_of(uid).write_bytes(b"\n".join(forged_line(made, uid) for _ in range(LINES // 20)) + b"\n")
        ingest(place, store)
    store.close()
    recorder = Recorder(place)
    recorder.begin("command", "good", ["true"])
    recorder.end(0)
    book = open_book()
    assert [run["status"] for run in book.runs(Filter(name="good"))] == ["ok"]
    for run in book.runs(limit=1000):
        json.dumps(book.details(run))


@pytest.mark.parametrize(
    "odd",
    [b"[" * 200_000, b'{"a":' * 100_000, b"x" * 9_000_000, b'{"kind": "begin", "n": ' + b"9" * 100_000 + b"}", b"\0" * 100_000,
     b"\xff" * 1000],
    ids=["nested list", "nested object", "9 MB", "a long number", "NUL", "no UTF-8"],
)  # fmt: skip
def test_a_line_that_is_too_much_is_passed_over(place: Place, open_book: Open, odd: bytes) -> None:
    recorder = Recorder(place)
    recorder.begin("command", "odd", ["true"])
    with open(place.spool_of(recorder.uid), "ab") as spool:
        spool.write(odd + b"\n")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    recorder.end(0)
    [run] = open_book().runs()
    assert run["status"] == "ok"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120_000


def test_an_object_of_ara_that_unpacks_to_too_much_is_left_out() -> None:
    """A hundred times as much as it takes: it is given up after LONGEST_OBJECT."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(1 << 24)) for _ in range(10)) + packer.flush()
    assert len(packed) * 100 < 10 << 24
    done = Imported()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reader: Any = SimpleNamespace(done=done)
    assert _Playbook._bytes(reader, packed) is None
    assert done.damaged == 1
    assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024 < 3 * LONGEST_OBJECT
    small = zlib.compress(b"{}")
    assert _Playbook._bytes(reader, small) == b"{}"
    assert sys.getsizeof(small) < 100
