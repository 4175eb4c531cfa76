"""leadline template: made of the table of operations."""

from __future__ import annotations

from leadline.cli.operations import OperationGroup

command = OperationGroup(
    "template",
    [
        "leadline template save main load --command './load.sh {size}' \\",
        """  --survey '{"size": {"kind": "int", "default": 1000}}'""",
        """leadline template start main/load --inputs '{"size": 5000}'""",
        "leadline template grant main/load bob --role runner",
        "leadline template cancel 4k7q2",
    ],
)
