"""Answers the page's questions about one capture or recorder over stdin and stdout, one a line, for a server, which opens none itself.

    python -m leadline.explore.piped CAPTURE
    python -m leadline.explore.piped --recorder SECOND DIR       all of a recorder, its time counted from this second since 1970
    python -m leadline.explore.piped --recorder FROM-TO DIR      a window of it; FROM-TO~FROM-TO: compared with another one

It works within the bounds of server/read/sandbox.py, and ends with its stdin, or when nobody has asked anything for a while.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from leadline.duck import duckdb
from leadline.errors import LeadlineError
from leadline.explore.address import wrong
from leadline.explore.answers import open_explored
from leadline.explore.opening import Opening
from leadline.explore.overview import OF_RECORDER, Overview
from leadline.explore.shown import ANSWERS, Shown
from leadline.explore.windows import Windows
from leadline.output import to_json
from leadline.server.read import sandbox

IDLE_S = 600.0
OPENING = "opening"  # how far it is, and whether it can be opened at all


def answered(
    opening: Opening[Any], question: str, query: str, answers: Mapping[str, Callable[[Any, str], Any]] = ANSWERS
) -> dict[str, Any]:  # fmt: skip
    """What is answered, as one object: `answer`, or `error`."""
    try:
        if question == OPENING:
            return {"answer": opening.state()}
        sandbox.more_cpu()  # not for how far it is: whoever waits asks that again and again
        if question not in answers:
            raise wrong(f"the overview of a recorder has no {question}: open a window of it")
        return {"answer": answers[question](opening.get(), query)}
    except LeadlineError as e:
        return {"error": e.as_dict()}
    except (MemoryError, duckdb.Error) as e:
        said = str(e).strip().partition("\n")[0][:200]
        return {"error": sandbox.too_much("explored", said or sandbox.TOO_LITTLE).as_dict()}


def asked() -> Iterator[bytes]:
    """Lines of stdin."""
    left = b""
    while select.select([0], [], [], IDLE_S)[0] and (piece := os.read(0, 1 << 16)):
        *whole, left = (left + piece).split(b"\n")
        yield from whole


def main(words: Sequence[str]) -> None:
    sandbox.bound("explored")
    answers: Mapping[str, Callable[[Any, str], Any]] = ANSWERS
    if words[0] != "--recorder":
        opening: Opening[Any] = Opening(lambda tell: Shown.of(open_explored(Path(words[0]), tell))).begin()
    elif "-" in words[1]:
        opening = Windows(Path(words[2]), by_hand=False).opening(words[1])
    else:
        answers, origin = OF_RECORDER, int(words[1])
        opening = Opening(lambda _: Overview(Path(words[2]), origin * 10**9)).begin()
    for line in asked():
        given = json.loads(line)
        sys.stdout.buffer.write(to_json(answered(opening, given["question"], given["query"], answers)).encode() + b"\n")
        sys.stdout.buffer.flush()
    if (scratch := Path(tempfile.gettempdir())).name.startswith(sandbox.SCRATCH):
        shutil.rmtree(scratch, ignore_errors=True)
    os._exit(0)  # whatever is still being read


if __name__ == "__main__":
    main(sys.argv[1:])
