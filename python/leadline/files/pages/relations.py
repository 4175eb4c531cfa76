"""Relations of a data directory, checked across their pages: links, keys, rows against indexes, values against the catalog."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from leadline._core.pages import RelationRun
from leadline.errors import LeadlineError
from leadline.files import condition
from leadline.files.pages.directory import has_catalogs
from leadline.progress import TerminalLine

if TYPE_CHECKING:
    from leadline._core.pages import RelationProblem

Level = Literal["pages", "structure", "values"]
LEVELS: tuple[Level, ...] = ("pages", "structure", "values")
MAIN_FORK = re.compile(r"[0-9]+(\.[0-9]+)?")  # of a relation; maps are checked with it
MOST = 256
WAIT_S = 0.1


def level_of(paths: list[Path], wanted: Level | None) -> Level:
    """The level that is meant where none was given: structure for one main file of a relation with catalogs, else pages."""
    if wanted is not None:
        return wanted
    is_one = len(paths) == 1 and paths[0].is_file() and MAIN_FORK.fullmatch(paths[0].name) is not None
    return "structure" if is_one and _root(paths[0]) is not None else "pages"


class Relations:
    """The relations that paths stand for: iterate over the problems, then ask for the sums.

    paths: data directories, and files of relations in one. relations: how many were checked; skipped: what could not be compared, by the
    reason. may_fail: a file that is of no relation is a reason, not an error.
    """

    def __init__(self, paths: list[Path], *, values: bool, may_fail: bool, progress: TerminalLine | None = None) -> None:
        for path in paths:
            root = _root(path)
            if root is None or (path.is_dir() and not path.samefile(root)):
                raise LeadlineError(
                    "usage",
                    f"{path} cannot be checked at this level",
                    "relations are compared through the catalogs of a data directory",
                    "give a data directory, or the file of a relation in one; or use --level pages",
                )
        self._paths, self._values, self._may_fail, self._progress = paths, values, may_fail, progress
        self.relations = 0
        self.skipped: Counter[str] = Counter()

    def __iter__(self) -> Iterator[RelationProblem]:
        """Problems as they are found. Raises what ended the run early."""
        for path in self._paths:
            try:
                yield from self._of(path)
            except LeadlineError as e:
                if not self._may_fail:
                    raise
                self.skipped[": ".join(filter(None, [e.message, e.detail]))] += 1

    def _of(self, path: Path) -> Iterator[RelationProblem]:
        run = RelationRun(str(path), values=self._values)
        try:
            while (found := run.take(MOST, WAIT_S)) is not None:
                if found and self._progress:
                    self._progress.done()  # problems are printed where the bar is
                yield from found
                if self._progress:
                    done, of = run.status()
                    self._progress.share(done, max(of, 1), "relations compared")
        except BaseException:
            run.stop()
            raise
        finally:
            if self._progress:
                self._progress.done()
        summary = run.finish()
        self.relations += summary["relations"]
        self.skipped.update(summary["skipped"])


def _root(path: Path) -> str | None:
    found = condition.of(str(path))
    return found["root"] if found is not None and has_catalogs(found["root"]) else None
