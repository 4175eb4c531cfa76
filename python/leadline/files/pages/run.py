"""All pages of files and data directories, checked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from leadline._core.pages import PageRun
from leadline.files import condition, store
from leadline.files.pages import directory
from leadline.files.pages.relations import Level, Relations, level_of
from leadline.progress import TerminalLine
from leadline.units import MB

if TYPE_CHECKING:
    from leadline._core.datadir import Remark
    from leadline._core.pages import PageRunSummary, Problem

    class Summary(PageRunSummary):
        """What a run saw. notes: what to know of the data directories that the files are in. relations: how many were compared across
        their pages; not_compared: what could not be, by the reason.
        """

        notes: list[Remark]
        level: Level
        relations: int
        not_compared: dict[str, int]
        seconds: float


MOST = 256
WAIT_S = 0.1


class Pages:
    """A run over pages: iterate over the problems it finds, then ask for the summary.

    paths: files, directories of relation files, data directories, backups. key: that of encrypted ones. level: how much is compared; None:
    structure of a single file of a data directory, else pages. progress: where to draw the bar.
    """

    def __init__(
        self,
        paths: list[Path],
        *,
        block_size: int | None = None,
        key: str | None = None,
        level: Level | None = "pages",
        progress: TerminalLine | None = None,
    ) -> None:
        self.level = level_of(paths, level)
        self._relations = (
            Relations(paths, values=self.level == "values", may_fail=level is None, progress=progress) if self.level != "pages" else None
        )
        self._started = time.monotonic()
        store.reachable(paths)
        self._run = PageRun([str(path) for path in paths], block_size=block_size, key=key)
        self._progress = progress
        self._paths = paths
        self.remarks = condition.remarks(str(path) for path in paths)
        self.summary: Summary  # at the end

    def __iter__(self) -> Iterator[Problem]:
        """Problems as they are found, those of whole directories first. Ends when all pages were looked at; raises what ended the run
        early."""
        classes: Counter[str] = Counter()
        try:
            for problem in directory.problems(self._paths):
                classes[problem["class"]] += 1
                yield problem
            while (found := self._run.take(MOST, WAIT_S)) is not None:
                if found and self._progress:
                    self._progress.done()  # problems are printed where the bar is
                yield from found
                self._draw()
        except BaseException:
            self._run.stop()
            raise
        finally:
            if self._progress:
                self._progress.done()
        finished = self._run.finish()
        for found_in in self._relations or ():
            classes[found_in["class"]] += 1
            yield found_in
        self.summary = {
            **finished,
            "classes": dict(sorted((classes + Counter(finished["classes"])).items())),
            "notes": [remark for remark in self.remarks if not remark["is_error"]],
            "level": self.level,
            "relations": self._relations.relations if self._relations else 0,
            "not_compared": dict(sorted(self._relations.skipped.items())) if self._relations else {},
            "seconds": round(time.monotonic() - self._started, 3),
        }

    def _draw(self) -> None:
        if self._progress:
            status = self._run.status()
            elapsed = time.monotonic() - self._started
            rate = f"{status['bytes'] / max(elapsed, 1e-3) / MB:,.0f} MB/s, {status['problems']} problems"
            self._progress.share(status["bytes"], status["total_bytes"], rate)
