"""A detail capture by hand: who asks leaves a file in the directory, the recorder takes it away and answers in its state."""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError, cannot_be_written
from leadline.recorder.state import State, check_one, read_state

REQUEST = "detail.request"
TAKEN = "detail.request.taken"
LONGEST_S = 3600.0
ANSWERS_S = 30.0  # the recorder looks each two seconds; one that was stopped does not answer
LOOK_S = 0.1


def ask(directory: Path, for_s: float, *, answers_s: float = ANSWERS_S) -> Path:
    """Where the running recorder has begun the capture. Raises LeadlineError."""
    check_one(directory)
    _running(directory)
    number = uuid.uuid4().hex
    _leave(directory, {"id": number, "for_s": for_s})
    end = time.monotonic() + answers_s
    while time.monotonic() < end:
        state = read_state(directory)
        if state is None or not state.runs(directory):
            break
        if (answer := state.detail.get("answer", {})).get("id") == number:
            if error := answer.get("error"):
                raise LeadlineError("usage", error, hint=f"leadline record --status {directory}", where=str(directory))
            return directory / str(answer["capture"])
        time.sleep(LOOK_S)
    with suppress(FileNotFoundError):
        (directory / REQUEST).unlink()
    _running(directory)
    hint = f"look whether it is stopped: leadline record --status {directory}"
    raise LeadlineError("gone", f"the recorder did not answer within {answers_s:g} s", hint=hint, where=str(directory))


def take_request(directory: Path) -> dict[str, Any] | None:
    """In the recorder: what was asked, once. What is no request is dropped."""
    try:
        (directory / REQUEST).rename(directory / TAKEN)
        text = (directory / TAKEN).read_text(encoding="utf-8")
        (directory / TAKEN).unlink()
        found = json.loads(text)
        for_s = float(found["for_s"])
        return {"id": str(found["id"]), "for_s": for_s} if 0 < for_s <= LONGEST_S else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def forget_requests(directory: Path) -> None:
    """At the start: of somebody who asked a recorder that has ended."""
    for name in (REQUEST, TAKEN):
        with suppress(OSError):
            (directory / name).unlink()


def _running(directory: Path) -> State:
    """Raises LeadlineError when no recorder records there."""
    state = read_state(directory)
    if state is None or not state.runs(directory):
        hint = "start one with leadline record --to DIR; or take a capture yourself: leadline take"
        raise LeadlineError("gone", "no recorder runs in this directory", hint=hint, where=str(directory))
    if state.doing != "recording":
        why = (state.last_error or {}).get("message", "")
        hint = f"leadline record --status {directory}"
        raise LeadlineError("gone", "the recorder records nothing at the moment", why, hint, str(directory))
    return state


def _leave(directory: Path, request: dict[str, Any]) -> None:
    """Whole, or not at all. Raises LeadlineError."""
    temporary = directory / f"{REQUEST}.{request['id']}"
    try:
        temporary.write_text(json.dumps(request), encoding="utf-8")
        os.link(temporary, directory / REQUEST)
    except FileExistsError:
        hint = "ask again in some seconds"
        raise LeadlineError("usage", "somebody else has asked, and the recorder has not answered yet", hint=hint) from None
    except OSError as e:
        raise cannot_be_written("the request to the recorder", e, directory) from e
    finally:
        with suppress(OSError):
            temporary.unlink()
