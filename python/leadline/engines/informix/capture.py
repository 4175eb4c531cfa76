"""Listings of Informix written as an ordinary capture."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leadline._core.capture import TableWriter
from leadline._core.pages import informix_page_type
from leadline.capture.directory import new_capture
from leadline.capture.making import Making
from leadline.capture.manifest import ProbeState, Target
from leadline.capture.reader import Capture, open_capture
from leadline.engines.informix.oncheck import Chunk, Extent, Report
from leadline.engines.informix.onstat import Buffer, Listing, Sample
from leadline.engines.informix.text import INT32, INT64, Unknown
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline._core.capture import Written

TABLES = ("informix_sample", "informix_buffer", "informix_chunk", "informix_extent")
SYSTEM_PAGE_SIZES = (2048, 4096)
BATCH = 4096


@dataclass(frozen=True)
class Sizes:
    """system: bytes of the pages that onstat counts in. given: bytes of a page of chunks whose listing does not say."""

    system: int = 2048
    given: int | None = None

    def of(self, chunk: Chunk) -> int:
        """Bytes of a page of the chunk. Raises LeadlineError when pages of the system do not fill it."""
        size = chunk.page_size or self.given or self.system
        if size % self.system or size >= INT32:
            raise LeadlineError(
                "usage",
                f"chunk {chunk.chunk} has pages of {size} bytes, which is not a multiple of the system's {self.system}",
                hint="set --system-page-size to the page size in which onstat counts: 2048, or 4096 if the system page size is 4 kB",
            )
        return size


def write(onstat: list[Path], oncheck: Path | None, directory: Path, sizes: Sizes, *, overwrite: bool = False) -> Capture:
    """Writes the capture and opens it. overwrite: replace a capture that is there. What a failure leaves is marked `failed`."""
    _refuse_before_writing(onstat, oncheck)
    with new_capture(directory, overwrite=overwrite, exactly=True):
        options = {
            "onstat": [str(path) for path in onstat],
            "oncheck": str(oncheck) if oncheck else None,
            "system_page_size": sizes.system,
            "page_size": sizes.given,
        }
        making = Making(directory, Target("informix", ", ".join(str(path) for path in onstat)), options)
        making.manifest.probes["informix"] = probe = ProbeState(tier="text")
        if oncheck is None:
            probe.status, probe.why, probe.hint = "partial", "no oncheck -pe output was given", "--oncheck FILE"
        with making.from_files() as manifest:
            manifest.tables, unknown = _write_tables(onstat, oncheck, str(directory), sizes)
            probe.loss = {"unknown_lines": {name: {"count": u.count, "first": u.first} for name, u in unknown.items()}}
            for name, u in unknown.items():
                if u.count:
                    manifest.note(f"{name}: {u.count} lines in an unknown format were skipped")
            making.write()
            capture = open_capture(directory)
            manifest.note(*_doubts(capture, sizes))
    capture.manifest = manifest
    return capture


def _refuse_before_writing(onstat: list[Path], oncheck: Path | None) -> None:
    """Raises what is wrong with a file as a whole, before there is a directory that somebody would have to remove."""
    for path in onstat:
        next(iter(Listing(path)))
    if oncheck is not None:
        next(iter(Report(oncheck)))


def _write_tables(
    onstat: list[Path], oncheck: Path | None, directory: str, sizes: Sizes
) -> tuple[dict[str, Written], dict[str, Unknown]]:
    writers = {name: TableWriter(directory, name) for name in TABLES}
    unknown: dict[str, Unknown] = {}
    numbers = itertools.count(1)
    for path in onstat:
        listing = Listing(path)
        _append(writers, _onstat_rows(listing, numbers))
        unknown[str(path)] = listing.unknown
    if oncheck is not None:
        report = Report(oncheck)
        _append(writers, _oncheck_rows(report, sizes))
        unknown[str(oncheck)] = report.unknown
    return {name: writer.close() for name, writer in writers.items()}, unknown


def _append(writers: dict[str, TableWriter], rows: Iterable[tuple[str, tuple[Any, ...]]]) -> None:
    """Rows (table, values), a batch at a time whatever their number."""
    rows = iter(rows)
    while batch := list(itertools.islice(rows, BATCH)):
        for name, writer in writers.items():
            if part := [values for table, values in batch if table == name]:
                writer.append(part)


def _onstat_rows(listing: Listing, numbers: Iterator[int]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    sample = 0
    for found in listing:
        if isinstance(found, Sample):
            sample = next(numbers)
            yield "informix_sample", (sample, found.file, found.listing, found.version, found.uptime_s)
        else:
            yield "informix_buffer", _buffer_row(sample, found)


def _buffer_row(sample: int, b: Buffer) -> tuple[Any, ...]:
    kind = informix_page_type(b.pgflgs)
    names = (sample, b.pool_page_size, b.address, b.userthread, b.owner, b.flgs, b.flags, b.chunk, b.page)
    return (*names, b.memaddr, b.nslots, b.pgflgs, kind, b.scount, b.waiter)


def _oncheck_rows(report: Report, sizes: Sizes) -> Iterator[tuple[str, tuple[Any, ...]]]:
    for found in report:
        if isinstance(found, Chunk):
            size = sizes.of(found)
            yield "informix_chunk", (found.chunk, found.dbspace, found.pathname, size, found.size, found.used, found.free)
            continue
        row = _extent_row(found, sizes)
        if row[-1] < INT64:
            yield "informix_extent", row
        else:
            report.unknown.add(0, f"{found.description} {found.offset} {found.size}")


def _extent_row(e: Extent, sizes: Sizes) -> tuple[Any, ...]:
    """Offset and size are in pages of the dbspace, the pages of onstat in those of the system: first and end in the latter."""
    size = sizes.of(e.chunk)
    ratio = size // sizes.system
    names = (e.chunk.chunk, e.chunk.dbspace, e.description, e.datname, e.owner, e.relname)
    return (*names, e.offset, e.size, size, e.offset * ratio, (e.offset + e.size) * ratio)


def _doubts(capture: Capture, sizes: Sizes) -> list[str]:
    """What makes names doubtful: extents over each other, and page sizes that do not fit what onstat says."""
    overlaps = capture.scalar(
        """select count(*) from (
             select first_page < max(end_page) over (partition by chunk order by first_page, end_page
                                                     rows between unbounded preceding and 1 preceding) as over
             from informix_extent where extent_size > 0) where over"""
    )
    askew = capture.scalar(
        f"""select count(*) from informix_buffer
            where pool_page_size > {sizes.system} and page % (pool_page_size // {sizes.system}) <> 0"""
    )
    other = capture.scalar("select count(*) from informix_hot_buffer where page_size <> pool_page_size")
    doubts = (
        (overlaps, "extents overlap others: object names there may be wrong"),
        (askew, f"buffers do not start on a page boundary of their pool: check --system-page-size {sizes.system}"),
        (other, "buffers are in chunks whose page size differs from their pool: check that the extent listing is from this server"),
    )
    return [f"{number} {text}" for number, text in doubts if number]
