"""leadline token: made of the table of operations."""

from __future__ import annotations

from leadline.cli.operations import OperationGroup

command = OperationGroup(
    "token",
    [
        "leadline token create --name ci --user bob --scope runner --json",
        "leadline token revoke ab12cd34ef",
    ],
)
