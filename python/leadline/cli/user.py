"""leadline user: made of the table of operations."""

from __future__ import annotations

from leadline.cli.operations import OperationGroup

command = OperationGroup(
    "user",
    [
        "leadline user create ann --admin",
        "leadline user create bob --password-file -",
        "leadline user role main bob --role runner",
        "leadline user audit",
    ],
)
