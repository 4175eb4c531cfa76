"""leadline secret: made of the table of operations."""

from __future__ import annotations

from leadline.cli.operations import OperationGroup

command = OperationGroup(
    "secret",
    [
        "leadline secret key",
        "leadline secret set main prod-db --value-file -",
        "leadline secret list main",
    ],
)
