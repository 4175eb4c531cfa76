"""Checks `leadline recover --archive` against the server's own archive recovery, for every kind of target. It measures nothing.

    python bench/restore.py                       13 to 18, about 20 minutes
    python bench/restore.py --majors 15           one version

For each version a private server is backed up while it changes, and goes on with all its WAL archived. Two copies of the backup are
restored to the same target, one by the server alone and one by leadline first; after promotion the rows, the timeline, its history
file and every file must be equal. Targets: LSN, time, transaction and restore point, inclusive and exclusive, the end of the archive,
and places on timelines that were left and on those that came from them. Then leadline is killed in each phase, and the server goes
on. It prints a line for each check, and JSON at the end. The first difference ends it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from record import read_environment, start_as_installed

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "tests" / place) for place in ("support", "")]

PHASES = ("find", "read", "pages", "sync", "status", "hand over")
EXCLUSIVE = {"recovery_target_inclusive": "off"}


def targets(backup: Any, marks: tuple[str, ...]) -> Iterator[tuple[str, dict[str, str], tuple[str, ...]]]:
    """Name, settings and options."""
    for mark in marks:
        for kind in ("lsn", "time", "xid", "name"):
            value = backup.marks[f"{mark} {kind}"][1]
            settings = {f"recovery_target_{kind}": value}
            yield f"{mark} {kind}", settings, ()
            if kind != "name":
                yield f"{mark} {kind} exclusive", {**settings, **EXCLUSIVE}, (f"--to-{kind}", value, "--exclusive")


def check(major: int) -> list[dict[str, Any]]:
    from recovery import PlainServer, differences
    from restoring import backed_up, kill, promoted, restored_equally, rows, switched

    done: list[dict[str, Any]] = []

    def note(name: str, found: Any, began: float) -> None:
        seconds = round(time.monotonic() - began, 1)
        done.append({"major": major, "check": name, "timeline": found[-1], "marks": found[0], "seconds": seconds})
        print(f"{major}: {name}: equal, timeline {found[-1]}, {len(found[0] or ())} marks", file=sys.stderr, flush=True)

    with backed_up(major, PlainServer) as backup:
        wishes = [*targets(backup, ("first", "second")), ("end", {}, ("--to-end",))]
        for name, settings, options in wishes:
            began = time.monotonic()
            note(name, restored_equally(backup, settings, *options), began)
        switched(backup)
        left = {"recovery_target_timeline": "1"}
        current = {"recovery_target_timeline": "current", "recovery_target_name": "second"}
        wishes = [*targets(backup, ("third",)), ("end, newest timeline", {}, ("--to-end",))]
        wishes += [("end, timeline left", left, ("--to-end",)), ("second name, own timeline", current, ())]
        for name, settings, options in wishes:
            began = time.monotonic()
            note(name, restored_equally(backup, settings, *options), began)
        settings = {"recovery_target_timeline": "1", "recovery_target_name": "second"}
        stock = backup.restored("stock", **settings)
        expected = promoted(backup, stock)
        for phase in PHASES:
            began = time.monotonic()
            copy = backup.restored("copy", **settings)
            kill(copy, backup, phase)
            found = promoted(backup, copy)
            assert found == expected, (phase, found, expected)
            assert differences(stock, copy) == [], phase
            note(f"killed in phase {phase}, then the server", rows(backup, copy), began)
            backup.removed("copy")
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--majors", default="13,14,15,16,17,18")
    arguments = parser.parse_args()
    start_as_installed()
    results = [result for major in arguments.majors.split(",") for result in check(int(major))]
    json.dump({"environment": read_environment(), "results": results}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
