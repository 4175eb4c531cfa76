"""Compares what this build and another one say about the same captures: every figure of `show`, of `findings`, and the sums of each view.

    python bench/same_answers.py --other OTHER/.venv/bin/python CAPTURE...
    python bench/same_answers.py --store FILE CAPTURE...    what this build says, to compare others with it
    python bench/same_answers.py --stored FILE CAPTURE...   the same captures, under the same names

OTHER is a checkout of another commit after its `make build`. A capture is a folder NAME.leadline, or a folder of such folders. What only
this build says (a new key, a new column) is counted, and is no difference. Exit code 1 when something that the other build says is missing
or has another value.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COMMANDS = (("show", "--json"), ("findings", "--all", "--json"))
CLOSE = 1e-9  # relative: threads add in any order
MOST, WIDTH = 20, 200  # differences printed of each capture, and characters of each
NO_ANSWER = "sql"  # the text of a query is not what it says
# The rows of a table or view, and the sum of each column: of numbers their sum, of texts their lengths.
SUMS = """
import json, sys
from leadline.capture.reader import open_capture
from leadline.tables import all_tables
capture, found = open_capture(sys.argv[1], whole=True), {}
for name in all_tables():
    sums = ['count(*) as "rows"']
    for row in capture.rows(f'describe "{name}"'):
        column, is_number = row["column_name"], row["column_type"].endswith(("INT", "INTEGER", "DOUBLE", "BOOLEAN"))
        value = f'"{column}"' if is_number else f'length("{column}"::varchar)'
        sums.append(f'sum({value}::double) as "{column}"')
    found[name] = capture.rows(f'select {", ".join(sums)} from "{name}"')[0]
print(json.dumps(found, default=str))
"""


def said(python: str, capture: Path) -> dict[str, Any]:
    """What a build says. `findings` ends with 1 when it has found something."""
    answers = {}
    for name, arguments in [(words[0], ["-m", "leadline", words[0], str(capture), *words[1:]]) for words in COMMANDS] + [
        ("views", ["-c", SUMS, str(capture)])
    ]:
        done = subprocess.run([python, *arguments], capture_output=True, text=True)
        if done.returncode > 1:
            sys.exit(f"error: {name} {capture} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        answers[name] = json.loads(done.stdout)
    return answers


def differences(this: Any, other: Any, at: str) -> Iterator[str]:
    """What the other build says and this one does not."""
    if isinstance(other, dict) and isinstance(this, dict):
        for key, value in other.items():
            if key == NO_ANSWER:
                continue
            if key not in this:
                yield f"{at}.{key}: missing"
            else:
                yield from differences(this[key], value, f"{at}.{key}")
    elif isinstance(other, list) and isinstance(this, list):
        if len(this) != len(other):
            yield f"{at}: {len(this)} items, the other build has {len(other)}"
        for number, (mine, its) in enumerate(zip(this, other)):
            yield from differences(mine, its, f"{at}[{number}]")
    elif is_number(this) and is_number(other):
        if not math.isclose(this, other, rel_tol=CLOSE, abs_tol=CLOSE):
            yield f"{at}: {this!r}, the other build says {other!r}"
    elif this != other:
        yield f"{at}: {this!r}, the other build says {other!r}"


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def added(this: Any, other: Any) -> int:
    """How many keys only this build has."""
    if isinstance(this, dict) and isinstance(other, dict):
        return sum(1 if key not in other else added(value, other[key]) for key, value in this.items())
    if isinstance(this, list) and isinstance(other, list):
        return sum(added(mine, its) for mine, its in zip(this, other))
    return 0


def figures(answer: Any) -> int:
    """How many numbers were compared."""
    if isinstance(answer, dict | list):
        return sum(map(figures, answer.values() if isinstance(answer, dict) else answer))
    return int(is_number(answer))


def captures(paths: list[Path]) -> list[Path]:
    """Those that were named, and those in folders that were named."""
    return sorted(found for path in paths for found in ([path] if (path / "manifest.json").exists() else path.iterdir()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("captures", type=Path, nargs="+")
    against = parser.add_mutually_exclusive_group(required=True)
    against.add_argument("--other", type=Path, help="Python of another build's virtual environment")
    against.add_argument("--store", type=Path, help="file for what this build says")
    against.add_argument("--stored", type=Path, help="file of what another build said")
    options = parser.parse_args()
    os.environ["LEADLINE_BOOK"] = "off"
    all_of_them, different, compared, new = captures(options.captures), 0, 0, 0
    if options.store:
        options.store.write_text(json.dumps({capture.name: said(sys.executable, capture) for capture in all_of_them}))
        return
    stored = json.loads(options.stored.read_text()) if options.stored else {}
    for capture in all_of_them:
        this = said(sys.executable, capture)
        other = stored[capture.name] if stored else said(str(options.other.absolute()), capture)
        found = list(differences(this, other, capture.name))
        different, compared, new = different + bool(found), compared + figures(other), new + added(this, other)
        for line in found[:MOST] + [f"{capture.name}: {len(found) - MOST} more"] * (len(found) > MOST):
            print(line[:WIDTH])
    print(f"{len(all_of_them)} captures, {compared} figures: {different} captures differ; {new} keys are new")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
