"""What a running recorder tells others while it runs: metrics for Prometheus to fetch, and for OpenTelemetry to be sent.

families.py says which metrics there are. Sources give their values: follower.py from the pieces that are being recorded, host.py from the
kernel, own.py about the recorder itself. exposition.py and otlp.py write them, server.py and push.py give them away, publish.py puts all of
that together. A source more is a list of families and a `readings` more. grafana.json draws the metrics.
"""

from pathlib import Path

DASHBOARD = Path(__file__).with_name("grafana.json")
