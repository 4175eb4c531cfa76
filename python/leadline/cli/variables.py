"""leadline variables: made of the table of operations."""

from __future__ import annotations

from leadline.cli.operations import OperationGroup

command = OperationGroup(
    "variables",
    [
        """leadline variables set main prod --values '{"env": "prod"}'""",
        "leadline variables list main",
        "leadline template save main load --command './load {env}' --variables prod",
    ],
)
