"""Reports of the captures that runs made, as pages that are kept."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from leadline.book.place import Place
from leadline.errors import LeadlineError
from leadline.server.read import sandbox


def report_page(place: Place, uid: str, artifact: dict[str, Any]) -> Path:
    """The report of a capture that a run made: made once for each state of it, and kept for the newest."""
    capture = Path(artifact["path"])
    try:
        about = (capture / "manifest.json").stat()
    except (OSError, ValueError):
        raise LeadlineError("not_found", "the capture no longer exists", hint="it was moved or removed since") from None
    key = hashlib.sha256(f"{capture}\0{about.st_mtime_ns}\0{about.st_size}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
    page = place.reports_of(uid) / f"{artifact['n']}-{key}.html"
    if not page.exists():
        page.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        sandbox.report(capture, page)
        for older in page.parent.glob(f"{artifact['n']}-*.html"):
            if older != page:
                older.unlink(missing_ok=True)
    return page
