"""What pg_control says of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from leadline._core.pages import page_read


def control(data_dir: Path) -> dict[str, Any]:
    """The fields of pg_control. Raises LeadlineError."""
    page = page_read(str(data_dir / "global" / "pg_control"), 0)
    return {name: field["value"] for part in page["parts"] for name, field in part["fields"].items()}
