"""The values of a page's items, typed by the catalog of the data directory that the page's file is in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leadline._core.pages import PageValues
from leadline.errors import LeadlineError

if TYPE_CHECKING:
    from leadline._core.pages import Page


def add_values(page: Page, relation: PageValues | None = None) -> None:
    """Sets `relation` and `columns` [(name, type)] of a page, and `values` {name: text} of each item that has some; where texts are not
    in UTF-8 `encoding`, and `unconverted_characters`, how many characters of the page's are U+FFFD instead.

    relation: of the page's file, for who looks at many pages of one; else the catalog is read for this page.
    Where no catalog says what the columns are, `relation` is None and `untyped` says why.
    """
    page["relation"] = page["columns"] = None
    raw = page["raw"]
    if page["engine"] != "postgres" or page["fork"] != "main" or "dump" in page or raw is None:
        return
    try:
        relation = relation or PageValues(page["path"])
        before = relation.unconverted_characters
        found = dict(relation.of(raw, page["fork_block"]))
    except LeadlineError as e:
        page["untyped"] = e.message + (f": {e.detail}" if e.detail else "")
        return
    page["relation"], page["columns"] = relation.relation, relation.columns
    lost = relation.unconverted_characters - before
    if relation.encoding and (lost or relation.encoding != "UTF8"):
        page["encoding"] = relation.encoding
        page["unconverted_characters"] = lost
    for part in page["parts"]:
        number = part["number"]
        if part["part"] in ("tuple", "item", "range") and number in found:
            part["values"] = dict(found[number])
