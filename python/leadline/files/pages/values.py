"""The values of a page's items, typed by the catalog of the data directory that the page's file is in."""

from __future__ import annotations

from typing import Any

from leadline._core.pages import PageValues
from leadline.errors import LeadlineError


def add_values(page: dict[str, Any], relation: PageValues | None = None) -> None:
    """Sets `relation` and `columns` [(name, type)] of a page, and `values` {name: text} of each item that has some; where texts are not
    in UTF-8 `encoding`, and `unconverted_characters`, how many characters of the page's are U+FFFD instead.

    relation: of the page's file, for who looks at many pages of one; else the catalog is read for this page.
    Where no catalog says what the columns are, `relation` is None and `untyped` says why.
    """
    page["relation"] = page["columns"] = None
    if page["engine"] != "postgres" or page["fork"] != "main" or "dump" in page:
        return
    try:
        relation = relation or PageValues(page["path"])
        before = relation.unconverted_characters
        found = dict(relation.of(page["raw"], page["fork_block"]))
    except LeadlineError as e:
        page["untyped"] = e.message + (f": {e.detail}" if e.detail else "")
        return
    page["relation"], page["columns"] = relation.relation, relation.columns
    lost = relation.unconverted_characters - before
    if relation.encoding and (lost or relation.encoding != "UTF8"):
        page["encoding"] = relation.encoding
        page["unconverted_characters"] = lost
    for part in page["parts"]:
        if part["part"] in ("tuple", "item", "range") and part["number"] in found:
            part["values"] = dict(found[part["number"]])
