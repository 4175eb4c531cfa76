"""leadline recorder: made of the table of operations."""

from __future__ import annotations

from leadline.cli.operations import OperationGroup

command = OperationGroup(
    "recorder",
    [
        "leadline recorder register shop --project main --directory /srv/shop",
        "leadline recorder list",
        "leadline recorder remove shop",
    ],
)
