"""The one table: all operations. Routes, OpenAPI, commands and forms are made from it."""

from __future__ import annotations

from leadline.server import (
    accounts,
    comparing,
    hooks,
    hosts,
    launches,
    links,
    oidc,
    output,
    playbooks,
    projects,
    prometheus,
    runs,
    schedules,
    templates,
    totp,
    variables,
    vault,
)
from leadline.server.operation import Operation

PARTS = (
    runs, output, playbooks, hosts, comparing, templates, launches, schedules, hooks, variables, vault, accounts, projects, links, totp,
    oidc, prometheus,
)  # fmt: skip
OPERATIONS: tuple[Operation, ...] = tuple(operation for part in PARTS for operation in part.OPERATIONS)
BY_NAME = {operation.name: operation for operation in OPERATIONS}
