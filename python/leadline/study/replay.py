"""A trial of the study `parameters`: how fast a standby replays WAL that waits on its disk, and that it has not in its memory.

    leadline.study.replay DSN STANDBY_DSN --updates 100000

Replay is paused while the primary updates so many rows of the table `spread`, each at random. The standby's files are written to the disk
and taken out of the page cache; then replay goes on, with nothing else at work. Prints one object of JSON.
"""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from leadline.engines.postgres.forecast import capacity
from leadline.errors import LeadlineError
from leadline.study import trial
from leadline.study.drain import of_backlog
from leadline.study.positions import Positions, connected
from leadline.units import GB, MB

UPDATES = """do $$
declare
  most int := (select max(id) from spread);
  chosen int;
begin
  for i in 1..{} loop
    chosen := 1 + (random() * (most - 1))::int;
    update spread set n = n + 1 where id = chosen;
  end loop;
end $$"""


def main(argv: list[str]) -> int:
    parser = trial.of_pair("replay")
    parser.add_argument("--updates", type=int, required=True)
    trial.take_times(parser, most_s="300s")
    return trial.run(parser, replay, argv)


def replay(given: argparse.Namespace) -> dict[str, Any]:
    """Raises LeadlineError."""
    with (
        closing(Positions(given.primary, given.standby)) as positions,
        closing(connected(given.primary)) as primary,
        closing(connected(given.standby)) as standby,
    ):
        positions.start()

        def cold() -> None:
            standby.execute("checkpoint")
            [folder] = standby.execute("show data_directory").fetchone() or ("",)
            forget(Path(folder, "base"))

        found = of_backlog(positions, standby, lambda: primary.execute(UPDATES.format(given.updates).encode()), given.most_s, cold)
    if (rate := capacity(found.readings)) is None:
        raise LeadlineError("gone", "replay took too little time to be measured", detail=f"{found.replayed / MB:.1f} MB")
    return {
        "replayed_mb_s": round(rate.rate / MB, 6), "replayed_mb": round(found.replayed / MB, 3), "seconds": round(rate.busy_s, 3),
        "cpu_s_gb": round(found.cpu_s * GB / found.replayed, 6),
    }  # fmt: skip


def forget(folder: Path) -> None:
    """The files are on their disk, and not in the page cache any more. Raises LeadlineError."""
    try:
        for path in folder.rglob("*"):
            if path.is_file():
                with path.open("rb+") as file:
                    os.fsync(file.fileno())
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    except OSError as e:
        raise LeadlineError("rights", "files of the standby cannot be taken out of the page cache", detail=str(e)) from e


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
