"""Problems of pages and relations as a table of a capture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline._core.capture import TableWriter
from leadline.capture.directory import new_capture
from leadline.capture.making import Making
from leadline.capture.manifest import ProbeState, Target

if TYPE_CHECKING:
    from leadline._core.pages import Problem
    from leadline.files.pages.run import Pages

TABLE = "page_problem"
OF_FILES = ("file", "control")  # kinds of problems that have no block


def kept(pages: Pages, names: list[str], out: Path, *, overwrite: bool) -> Iterator[Problem]:
    """The problems of a run as they come; each is a row of the capture that is there when the last one was taken."""
    with new_capture(out, overwrite=overwrite) as directory:
        making = Making(directory, Target("files", ", ".join(names)), {"paths": names, "level": pages.level})
        making.manifest.probes["pages"] = ProbeState(tier="files")
        with making.from_files() as manifest:
            writer = TableWriter(str(directory), TABLE)
            for problem in pages:
                writer.append([_row(problem)])
                yield problem
            manifest.tables[TABLE] = writer.close()
            manifest.target.detail = {**pages.summary}
            manifest.cost.bytes_written = manifest.tables[TABLE]["bytes"]


def _row(problem: Problem) -> tuple[Any, ...]:
    block = None if problem["kind"] in OF_FILES else problem["block"]
    relation = problem.get("relation", "") if problem["kind"] == "relation" else ""
    means, sure = problem.get("means", ""), problem.get("sure", "certain")
    return problem["path"], relation, block, problem["item"], problem["kind"], problem["class"], problem["message"], means, sure
