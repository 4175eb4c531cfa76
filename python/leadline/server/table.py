"""The one table: all operations. Routes, OpenAPI, commands and forms are made from it."""

from __future__ import annotations

from leadline.server import accounts, comparing, hooks, launches, output, playbooks, prometheus, runs, schedules, templates, vault
from leadline.server.operation import Operation

PARTS = (runs, output, playbooks, comparing, templates, launches, schedules, hooks, vault, accounts, prometheus)
OPERATIONS: tuple[Operation, ...] = tuple(operation for part in PARTS for operation in part.OPERATIONS)
BY_NAME = {operation.name: operation for operation in OPERATIONS}
