"""The one table: all operations. Routes, OpenAPI, commands and forms are made from it."""

from __future__ import annotations

from leadline.server.accounts import links, oidc, totp, users, vault
from leadline.server.launch import hooks, launch_queue, projects, schedules, templates, variables
from leadline.server.operation import Operation
from leadline.server.read import comparing, hosts, output, playbooks, prometheus, recorders, runs

PARTS = (
    runs, output, playbooks, hosts, comparing, recorders, templates, launch_queue, schedules, hooks, variables, vault, users, projects,
    links, totp, oidc, prometheus,
)  # fmt: skip
OPERATIONS: tuple[Operation, ...] = tuple(operation for part in PARTS for operation in part.OPERATIONS)
BY_NAME = {operation.name: operation for operation in OPERATIONS}
