"""A capture as one JSON object: what it is of, and the numbers of its sections by their keys."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from leadline.capture.reader import Capture
from leadline.findings import Evaluation
from leadline.views.sections import Context, plain


def as_dict(capture: Capture, evaluation: Evaluation) -> dict[str, Any]:
    """What `show` prints, as numbers."""
    of = Context(capture, evaluation)
    sections = [section for section in of.sections() if section.in_json]
    of.prepare(sections)
    m = capture.manifest
    return {
        "path": str(capture.path),
        "status": m.status,
        "target": asdict(m.target),
        "rows": {name: about.get("rows") for name, about in m.tables.items()},
        **{section.key: plain(of.data(section)) for section in sections},
        "not_evaluated": [{"id": name, "reason": reason} for name, reason in evaluation.not_evaluated],
        "notes": m.notes,
        "cost": asdict(m.cost),
    }
