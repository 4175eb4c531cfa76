"""Running `leadline load` in tests."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from leadline.cli import run


def load(*words: Any) -> tuple[int, dict[str, Any]]:
    """The outcome of `leadline load run ... --json`, and what it said."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as messages:
        outcome = run(["load", "run", *map(str, words), "--json"])
    return outcome, json.loads(out.getvalue() or messages.getvalue())


def measured(found: dict[str, Any]) -> dict[str, Any]:
    """The phase that counts, of a load that has only one."""
    (phase,) = (phase for phase in found["phases"] if not phase["warm_up"])
    return phase
