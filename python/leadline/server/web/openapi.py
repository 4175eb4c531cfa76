"""The OpenAPI text of all operations."""

from __future__ import annotations

from typing import Any

from leadline.server.operation import Input, Operation
from leadline.server.web.answers import answer_of, schemas

PREFIX = "/api/v1"
_TYPES = {"text": "string", "enum": "string", "secret": "string", "int": "integer", "bool": "boolean", "json": "object"}
_PLAIN = {
    "run.output": "text/plain",
    "run.stream": "text/event-stream",
    "run.file": "application/octet-stream",
    "run.report": "text/html",
    "run.export": "text/html",
    "user.metrics": "text/plain",
}
ERROR = {
    "type": "object",
    "properties": {
        "error": {"type": "object", "required": ["kind", "message", "detail", "hint", "where"],
                  "properties": {name: {"type": "string"} for name in ("kind", "message", "detail", "hint", "where")}},
    },
}  # fmt: skip
_ERROR = {"$ref": "#/components/schemas/Error"}
_ERRORS = {
    "401": "not logged in",
    "403": "no right to do this",
    "404": "there is no such object, or none that you may see",
    "422": "a value is wrong",
}


def document(operations: tuple[Operation, ...], version: str, server: str = "/") -> dict[str, Any]:
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(PREFIX + operation.path, {})[operation.method.lower()] = _of(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "leadline", "version": version, "description": "The logbook: runs, templates, schedules and who may use them."},
        "servers": [{"url": server}],
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR, **schemas()},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _of(operation: Operation) -> dict[str, Any]:
    body = [i for i in operation.inputs if i.name not in operation.in_path] if operation.writes and operation.method != "DELETE" else []
    query = [i for i in operation.inputs if i not in body]  # and those in the path
    out: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "tags": [operation.group],
        "x-right": operation.right,
        "parameters": [
            {"name": i.name, "in": where, "required": i.required, "description": i.help, "schema": schema(i)}
            for i in query
            for where in ("path" if i.name in operation.in_path else "query",)
        ],
        "responses": {
            "200": {"description": "done", "content": _content(operation.name)},
            **{code: {"description": text, "content": {"application/json": {"schema": _ERROR}}} for code, text in _ERRORS.items()},
        },
    }  # fmt: skip
    if body:
        properties = {i.name: schema(i) | {"description": i.help} for i in body}
        of = {"type": "object", "properties": properties, "required": [i.name for i in body if i.required], "additionalProperties": False}
        out["requestBody"] = {"required": any(i.required for i in body), "content": {"application/json": {"schema": of}}}
    return out


def _content(name: str) -> dict[str, Any]:
    return {_PLAIN[name]: {}} if name in _PLAIN else {"application/json": {"schema": answer_of(name)}}


def schema(of: Input) -> dict[str, Any]:
    out: dict[str, Any] = {"type": _TYPES[of.kind]}
    for key, value in (("enum", list(of.choices) or None), ("minimum", of.least), ("maximum", of.most), ("default", of.default)):
        if value is not None:
            out[key] = value
    if of.pattern:
        out["pattern"] = f"^(?:{of.pattern})$"
    if of.kind == "secret":
        out |= {"format": "password", "writeOnly": True}
    return out
