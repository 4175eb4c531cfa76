"""What a run over many pages found, in a few lines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leadline.figures import count, quantity

if TYPE_CHECKING:
    from leadline.files.pages.run import Summary


def _read(summary: Summary) -> list[str]:
    took = summary["seconds"]
    rate = f"{quantity(summary['bytes'] / took)}B/s" if took > 0 else ""
    pages, files = count(summary["pages"], "page"), count(summary["files"], "file")
    lines = [f"{pages} in {files}, {quantity(summary['bytes'])}B in {took:.2f} s, {rate}"]
    kinds = sorted(summary["kinds"].items(), key=lambda kind: (-kind[1], kind[0]))
    lines += [f"  {number:>12,}  {kind}" for kind, number in kinds]
    if summary["vanished"]:
        lines.append(f"{count(summary['vanished'], 'file')} disappeared before being read: dropped by the running server")
    if summary["shrunk"]:
        lines.append("some files were truncated while being read: the removed part is not included in these figures")
    lines += [f"not scanned: {link} points to a missing tablespace" for link in summary["absent"]]
    return lines


def check_text(summary: Summary) -> str:
    """Pages by kind, then problems by class, or that there are none."""
    lines = _read(summary)
    lines.append(f"checksums verified on {count(summary['checksums'], 'page')}")
    classes = sorted(summary["classes"].items())
    if classes:
        lines.append("problems: " + ", ".join(f"{number:,} {name}" for name, number in classes))
    else:
        lines.append("no problems")
    return "\n".join(lines)


def scan_text(summary: Summary, output: Path) -> str:
    """Pages by kind and rows by table."""
    lines = _read(summary)
    lines += [f"  {rows:>12,}  rows of {name}" for name, rows in sorted(summary["rows"].items())]
    if summary["classes"]:
        lines.append(f"problems: {sum(summary['classes'].values()):,}; run leadline page check to list them")
    lines.append(f'next: leadline sql {output} "..." to query the tables')
    return "\n".join(lines)
