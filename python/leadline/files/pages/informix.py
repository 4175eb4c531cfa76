"""Pages of Informix. Nothing in a file says that it is one, nor how large its pages are: the caller does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline._core.pages import informix_page
from leadline.errors import LeadlineError
from leadline.files.pages import Place

if TYPE_CHECKING:
    from leadline._core.pages import Page

PAGE_SIZES = (2048, 4096, 6144, 8192, 10240, 12288, 14336, 16384)


def read_page(place: Place, page_size: int | None = None, *, version_15: bool = False, row_size: int | None = None) -> Page:
    """A page taken apart, in the shape of leadline._core.pages.page_read. Raises LeadlineError."""
    size = page_size or PAGE_SIZES[0]
    if size not in PAGE_SIZES:
        raise LeadlineError("usage", f"Informix has no {size}-byte pages", hint="use a multiple of 2048, up to 16384")
    raw = _read(place, size)
    page = informix_page(raw, version_15=version_15, row_size=row_size)
    return {
        "path": str(place.path),
        "engine": "informix",
        "block": place.block,
        "fork": "",
        "fork_block": place.block,
        "block_size": size,
        "checksums": None if version_15 else True,
        "raw": raw,
        "kind": page["kind"],
        "computed_checksum": page["computed_checksum"],
        "parts": page["parts"],
        "problems": page["problems"],
        "regions": page["regions"],
    }


def _read(place: Place, size: int) -> bytes:
    where = str(place.path)
    try:
        if place.path.is_dir():
            raise LeadlineError("invalid", "this is a directory", hint="give the file of a chunk", where=where)
        if place.path.is_fifo():  # to open one is to wait for somebody who writes; chunks on raw devices are read
            raise LeadlineError("invalid", "this is a pipe", hint="give the file of a chunk", where=where)
        with place.path.open("rb") as file:
            file.seek(place.block * size)
            raw = file.read(size)
    except FileNotFoundError as e:
        raise LeadlineError("not_found", "no such file", where=where) from e
    except PermissionError as e:
        hint = "run as the user that owns the chunk, or as root"
        raise LeadlineError("rights", "cannot read the file", detail=str(e.strerror), hint=hint, where=where) from e
    except OSError as e:
        raise LeadlineError("storage", f"cannot read the file: {e.strerror}", where=where) from e
    if len(raw) < size:
        detail = f"{len(raw)} bytes left in the file, a page has {size}"
        message, hint = f"the file does not contain the whole page {place.block}", "check the page number and --block-size"
        raise LeadlineError("invalid", message, detail=detail, hint=hint, where=where)
    return raw
