"""What a run over many pages found, in a few lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.figures import count
from leadline.output import width_here
from leadline.units import sized

if TYPE_CHECKING:
    from leadline._core.pages import NotChecked, Problem, RelationProblem
    from leadline.files.pages.run import Summary

UNKNOWN = "unknown"  # crates/pagescan/src/passed.rs


def _read(summary: Summary) -> list[str]:
    took = summary["seconds"]
    rate = f"{sized(summary['bytes'] / took)}/s" if took > 0 else ""
    pages, files = count(summary["pages"], "page"), count(summary["files"], "file")
    lines = [f"{pages} in {files}, {sized(summary['bytes'])} in {took:.2f} s, {rate}"]
    kinds = sorted(summary["kinds"].items(), key=lambda kind: (-kind[1], kind[0]))
    lines += [f"  {number:>12,}  {kind}" for kind, number in kinds]
    if summary["vanished"]:
        lines.append(f"{count(summary['vanished'], 'file')} disappeared before being read: dropped by the running server")
    if summary["shrunk"]:
        lines.append("some files were truncated while being read: the removed part is not included in these figures")
    if summary["incremental"]:
        files = count(summary["incremental"], "file")
        lines.append(f"{files} of an incremental backup: blocks that did not change are in an earlier one")
    if summary["written_again"]:
        pages = count(summary["written_again"], "page")
        lines.append(f"{pages} with a wrong checksum changed while the backup was taken: its WAL has them whole, and replay restores them")
    lines += [f"{path}: {kind}, read in place; its files are not compared with its catalogs" for path, kind in summary["backups"]]
    lines += [f"not scanned: {link} points to a missing tablespace" for link in summary["absent"]]
    return [*lines, *_not_checked(summary["not_checked"])]


def _not_checked(passed: list[NotChecked]) -> Iterator[str]:
    """What has no pages of relations on one line; what may have, each on a line of its own, with an example."""
    told = {of_kind["kind"]: of_kind for of_kind in passed}
    unknown = told.pop(UNKNOWN, None)
    if told:
        kinds = ", ".join(f"{of_kind['files']:,} {of_kind['kind']}" for of_kind in told.values())
        lines = f"not checked, files without pages of relations: {kinds}"
        yield from textwrap.wrap(lines, width_here(), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    if unknown:
        yield f"not checked: {count(unknown['files'], 'unknown file')}, such as"
        yield f"  {unknown['first']}"


def problem_line(problem: Problem | RelationProblem) -> str:
    """Where, what, and what that means where it is known."""
    block = "" if problem["kind"] in ("file", "control") else f":{problem['block']}"
    text = f"{problem['path']}{block}: {problem['class']}: "
    if problem["kind"] != "relation":
        return text + problem["message"]
    return f"{text}{problem.get('relation')}: {problem['message']} ({problem.get('means')})"


def is_part(summary: Summary) -> bool:
    """Whether there are pages that could not be checked: those of a tablespace that is not there."""
    return bool(summary["absent"])


def _compared(summary: Summary) -> Iterator[str]:
    """What was compared across pages, and what could not be."""
    if summary["relations"]:
        what = "structure and values" if summary["level"] == "values" else "structure"
        yield f"{what} of {count(summary['relations'], 'relation')} checked"
    for why, number in summary["not_compared"].items():
        yield from textwrap.wrap(f"not compared: {number:,} {why}", width_here(), subsequent_indent="  ", break_on_hyphens=False)


def check_text(summary: Summary) -> str:
    """Pages by kind, then problems by class, or that there are none."""
    lines = _read(summary)
    lines.append(f"checksums verified on {count(summary['checksums'], 'page')}")
    if summary["digests"]:
        lines.append(f"{count(summary['digests'], 'file')} with the SHA-1 of the manifest")
    lines += _compared(summary)
    is_all = not is_part(summary) and not summary["incremental"] and not summary["backups"]
    classes = sorted(summary["classes"].items())
    if classes:
        lines.append("problems: " + ", ".join(f"{number:,} {name}" for name, number in classes))
    else:
        lines.append("no problems" if is_all else "no problems in what was checked")
    return "\n".join(lines)


def scan_text(summary: Summary, output: Path) -> str:
    """Pages by kind and rows by table."""
    lines = _read(summary)
    lines += [f"  {rows:>12,}  rows of {name}" for name, rows in sorted(summary["rows"].items())]
    if summary["classes"]:
        lines.append(f"problems: {sum(summary['classes'].values()):,}; run leadline page check to list them")
    lines.append(f'next: leadline sql {output} "..." to query the tables')
    return "\n".join(lines)
