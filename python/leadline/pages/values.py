"""The values of a page's items, typed by the catalog of the data directory that the page's file is in."""

from __future__ import annotations

from typing import Any

from leadline._core import PageValues
from leadline.errors import LeadlineError


def add_values(page: dict[str, Any]) -> None:
    """Sets `relation` and `columns` [(name, type)] of a page, and `values` {column: text} of each item that has some.

    Where no catalog says what the columns are, `relation` is None and `untyped` says why.
    """
    page["relation"] = page["columns"] = None
    if page["engine"] != "postgres" or page["fork"] != "main" or "dump" in page:
        return
    try:
        relation = PageValues(page["path"])
        found = dict(relation.of(page["raw"], page["fork_block"]))
    except LeadlineError as e:
        page["untyped"] = e.message + (f": {e.detail}" if e.detail else "")
        return
    names = [name for name, _ in relation.columns]
    if page["kind"].startswith("hash"):
        names = [f"hash of {name}" for name in names]  # all that a hash index keeps of a value
    page["relation"], page["columns"] = relation.relation, relation.columns
    for part in page["parts"]:
        if part["part"] in ("tuple", "item") and part["number"] in found:
            part["values"] = {names[n]: text for n, text in found[part["number"]]}
