"""leadline hook: made of the table of operations."""

from __future__ import annotations

from leadline.cli.operations import OperationGroup

command = OperationGroup(
    "hook",
    [
        "leadline hook start main deploy --template main/load --secret hook-key",
        "leadline hook tell main pager --url https://pager/in --secret hook-key",
        "leadline hook list",
    ],
)
