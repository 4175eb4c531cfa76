"""Parts of pages of a test server's relations, taken out of their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from conftest import Server
from leadline._core.pages import PageValues, page_read
from leadline.files.pages.values import add_values


def relation_file(server: Server, name: str, fork: str = "") -> str:
    [[path]] = server.sql("select pg_relation_filepath(%s)", [name])
    return f"{server.private.data_dir}/{path}{fork}"


def blocks(server: Server, name: str, fork: str = "main") -> int:
    [[count]] = server.sql("select (pg_relation_size(%s, %s) / 8192)::int", [name, fork])
    return int(count)


def values(part: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(part["fields"][name]["value"] if name in part["fields"] else None for name in names)


def numbered(page: dict[str, Any], name: str) -> dict[int, dict[str, Any]]:
    return {part["number"]: part for part in page["parts"] if part["part"] == name}


def part(page: dict[str, Any], name: str) -> dict[str, Any]:
    return next(part for part in page["parts"] if part["part"] == name)


def every_page(server: Server, name: str, most: int = 1000) -> Iterator[tuple[int, dict[str, Any]]]:
    path, count = relation_file(server, name), blocks(server, name)
    assert 0 < count < 1000
    for block in range(min(count, most)):
        page = page_read(path, block)
        assert page["problems"] == []
        yield block, page


def every_typed_page(server: Server, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Pages whose items have their values; the catalog is read once for all of them."""
    relation = PageValues(relation_file(server, name))
    for block, page in every_page(server, name):
        add_values(page, relation)
        assert page["relation"] == f"public.{name}", page.get("untyped")
        yield block, page


def shown_values(made: Server, name: str) -> Iterator[tuple[str, dict[str, Any], dict[str, str | None]]]:
    """(kind of page, item, its typed values) of all pages of a relation."""
    for _, page in every_typed_page(made, name):
        for item in page["parts"]:
            if "values" in item:
                yield page["kind"], item, item["values"]


def tids_of(item: dict[str, Any]) -> list[str]:
    """The rows that an item of a leaf stands for."""
    fields = item["fields"]
    return fields["tids"]["value"] if "tids" in fields else [fields["t_tid"]["value"]]
