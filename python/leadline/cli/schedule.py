"""leadline schedule: made of the table of operations."""

from __future__ import annotations

from leadline.cli.operations import OperationGroup

command = OperationGroup(
    "schedule",
    [
        "leadline schedule save main/load --cron '30 2 * * 1-5' --zone Europe/Prague",
        "leadline schedule list",
        "leadline schedule set 4k7q2ab8c9de --no-active",
    ],
)
