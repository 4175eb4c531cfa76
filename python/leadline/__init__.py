"""Leadline: where does the time of a database go? Captures of a running server, and what they say.

    import leadline

    path = leadline.take(dsn="postgres:///shop", for_s=10)
    with leadline.open(path) as capture:
        for finding in capture.findings():
            print(finding.severity, finding.statement)

The names are imported when they are first used, so that commands start without what they do not need.
"""

from __future__ import annotations

TYPE_CHECKING = False  # that of `typing`, which takes as long to import as Python to start: see __main__
if TYPE_CHECKING:
    from typing import Any

    from leadline.api import Capture, Findings, Query, take
    from leadline.api import open_capture as open
    from leadline.errors import LeadlineError

__all__ = ["Capture", "Findings", "LeadlineError", "Query", "open", "take"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'leadline' has no attribute {name!r}")
    if name == "LeadlineError":
        from leadline.errors import LeadlineError

        return LeadlineError
    from leadline import api

    return api.open_capture if name == "open" else getattr(api, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
