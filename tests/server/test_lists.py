"""The shell, the routes, the forms and OpenAPI have the same operations: all are made of one table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from commands import leaves
from leadline.server.rights import ROLES
from leadline.server.table import OPERATIONS
from leadline.server.web.openapi import PREFIX, document
from leadline.server.web.pages import PAGES
from serving import Served, serving

GROUPS = {operation.group for operation in OPERATIONS if not operation.command}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("lists")) as served:
        yield served


def test_every_operation_is_a_command_and_every_such_command_an_operation() -> None:
    there = {" ".join(words) for words, _ in leaves()}
    made = {operation.command or f"{operation.group} {operation.verb}" for operation in OPERATIONS}
    assert made - there == set()
    assert {line for line in there if line.split()[0] in GROUPS} == {line for line in made if line.split()[0] in GROUPS}


def test_a_command_takes_what_its_operation_takes() -> None:
    commands = {" ".join(words): command for words, command in leaves()}
    for operation in OPERATIONS:
        if not operation.command:
            taken = {parameter.name.rstrip("_") for parameter in commands[f"{operation.group} {operation.verb}"].params if parameter.name}
            assert taken - {"as_json", "form"} == {i.name for i in operation.inputs}, operation.name


def test_openapi_has_every_operation_and_no_other() -> None:
    paths = document(OPERATIONS, "1")["paths"]
    described = {(method.upper(), path, one["operationId"]) for path, methods in paths.items() for method, one in methods.items()}
    assert described == {(operation.method, PREFIX + operation.path, operation.name) for operation in OPERATIONS}


def test_every_operation_of_openapi_is_a_route(served: Served) -> None:
    paths = served.client().get("/openapi.json").json["paths"]
    for path, methods in paths.items():
        for method in methods:
            filled = path.replace("{", "").replace("}", "")
            answer = served.client().call(method.upper(), filled.removeprefix(PREFIX))
            assert answer.status != 405, (method, path)
            assert "there is no such page" not in answer.text, (method, path)


def test_every_write_has_a_form(served: Served) -> None:
    for operation in OPERATIONS:
        expected = 405 if operation.writes else 404
        assert served.client().get(f"/form/{operation.name}").status == expected, operation.name


def test_every_form_of_a_page_is_an_operation_that_writes() -> None:
    writes = {operation.name for operation in OPERATIONS if operation.writes}
    offered = {name for page in PAGES for name in page.forms + page.row_forms}
    assert offered - writes == set()


def test_names_and_paths_are_each_of_one_operation() -> None:
    assert len({operation.name for operation in OPERATIONS}) == len(OPERATIONS)
    assert len({(operation.method, operation.path) for operation in OPERATIONS}) == len(OPERATIONS)


def test_every_operation_says_who_may_do_it_and_on_what() -> None:
    for operation in OPERATIONS:
        names = {i.name for i in operation.inputs}
        assert operation.right in (*ROLES, "anyone", "site"), operation.name
        assert set(operation.in_path) <= names, operation.name
        if operation.right in ROLES:
            assert operation.on in names, operation.name  # whose role is asked
        else:
            assert operation.on == "", operation.name
