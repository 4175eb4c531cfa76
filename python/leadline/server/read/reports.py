"""Reports of the captures that runs made, as pages that are kept."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from leadline.book.place import Place
from leadline.errors import LeadlineError
from leadline.server.read import sandbox


def state_of(capture: Path) -> str:
    """What tells a capture, as it is now, from what is or was elsewhere or under the same name. Raises LeadlineError."""
    try:
        about = (capture / "manifest.json").stat()
    except (OSError, ValueError):
        raise LeadlineError("not_found", "the capture no longer exists", hint="it was moved or removed since") from None
    return hashlib.sha256(f"{capture}\0{about.st_mtime_ns}\0{about.st_size}".encode("utf-8", "surrogateescape")).hexdigest()[:32]


def report_page(place: Place, uid: str, artifact: dict[str, Any]) -> Path:
    """The report of a capture that a run made: made once for each state of it, and kept for the newest."""
    capture = Path(artifact["path"])
    page = place.reports_of(uid) / f"{artifact['n']}-{state_of(capture)}.html"
    if not page.exists():
        page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sandbox.report(capture, page)
        for older in page.parent.glob(f"{artifact['n']}-*.html"):
            if older != page:
                older.unlink(missing_ok=True)
    return page
