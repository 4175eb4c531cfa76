"""What differs between two pages: field by field, then parts that only one of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leadline.files.pages import named

if TYPE_CHECKING:
    from leadline._core.pages import Field, Page, Part

NOT_COMPARED = frozenset({"padding", "free"})


def differences(a: Page, b: Page) -> list[dict[str, Any]]:
    """Rows {part, field, a, b}: values that differ; field "" where only one page has the part. Empty: the same content."""
    found: list[dict[str, Any]] = []
    if a["kind"] != b["kind"]:
        found.append({"part": "page", "field": "kind", "a": a["kind"], "b": b["kind"]})
    mine, theirs = _parts(a), _parts(b)
    for name in dict.fromkeys([*mine, *theirs]):
        x, y = mine.get(name), theirs.get(name)
        if x is None or y is None:
            found.append({"part": name, "field": "", "a": _summary(x), "b": _summary(y)})
            continue
        found += _fields(name, x["fields"], y["fields"])
    return found


def _parts(page: Page) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    for part in page["parts"]:
        name, n = named(part), 2
        while name in parts:  # two parts of one name and no number
            name, n = f"{named(part)} ({n})", n + 1
        if part["part"] != "free space":
            parts[name] = part
    return parts


def _fields(part: str, a: dict[str, Field], b: dict[str, Field]) -> list[dict[str, Any]]:
    rows = []
    for name in dict.fromkeys([*a, *b]):
        x, y = a.get(name), b.get(name)
        if name in NOT_COMPARED or (x and y and x["value"] == y["value"]):
            continue
        rows.append({"part": part, "field": name, "a": _text(x), "b": _text(y)})
    return rows


def _text(field: Field | None) -> Any:
    """The value; with its words where it has some."""
    if field is None:
        return None
    return f"{field['value']} ({field['words']})" if field.get("words") else field["value"]


def _summary(part: Part | None) -> str | None:
    if part is None:
        return None
    return "there" if part["offset"] is None else f"{part['length']} bytes at {part['offset']}"
