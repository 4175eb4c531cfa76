"""The dashboard for Grafana draws what there is, and works in any Grafana."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from leadline.cli import run
from leadline.metrics import DASHBOARD
from leadline.metrics.families import FAMILIES
from promtool import promtool


def expressions() -> list[tuple[str, str]]:
    """Title of the panel and query."""
    board = json.loads(DASHBOARD.read_text())
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel["targets"]]


def test_what_the_dashboard_draws_is_there() -> None:
    named = {family.name: {label for label, _ in family.labels} | {"job", "instance"} for family in FAMILIES}
    used = set()
    for title, expression in expressions():
        for name, selectors in re.findall(r"\b((?:leadline|process)_\w+)\{([^}]*)\}", expression):
            assert name in named, f"{title}: there is no {name}"
            assert set(re.findall(r"(\w+)!?=~?\"", selectors)) <= named[name], (title, expression)
            used.add(name)
        assert set(re.findall(r"\b(?:leadline|process)_\w+", expression)) <= named.keys(), (title, expression)
        for by in re.findall(r"by \(([^)]*)\)", expression):
            assert set(by.split(", ")) <= set().union(*named.values()), (title, expression)
    variables = json.loads(DASHBOARD.read_text())["templating"]["list"]
    assert [variable["name"] for variable in variables] == ["datasource", "job", "instance"]
    assert all(re.findall(r"leadline_\w+", variable["query"]["query"]) == ["leadline_info"] for variable in variables[1:])
    unseen = {"leadline_passes_total", "leadline_server_info", "leadline_info", "leadline_pieces_total", "leadline_other_waits"}
    unseen |= {"leadline_otlp_pushes_total", "process_start_time_seconds"}
    assert named.keys() - used == unseen, "each is drawn, or said here not to be"


def test_the_dashboard_works_in_any_grafana() -> None:
    """Many of others do not, as their data source has a name that only one Grafana has."""
    board = json.loads(DASHBOARD.read_text())
    sources = [board["templating"]["list"][1]["datasource"], *(panel["datasource"] for panel in board["panels"])]
    sources += [target["datasource"] for panel in board["panels"] for target in panel["targets"]]
    assert {json.dumps(source, sort_keys=True) for source in sources} == {'{"type": "prometheus", "uid": "${datasource}"}'}
    assert "__inputs" not in board and "${DS_" not in DASHBOARD.read_text()
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    places = [[panel["gridPos"][side] for side in "xywh"] for panel in board["panels"]]
    taken = [(x + i, y + j) for x, y, w, h in places for i in range(w) for j in range(h)]
    assert len(set(taken)) == len(taken) and max(x for x, _ in taken) < 24, "panels lie side by side"


def test_its_queries_are_ones_of_prometheus(tmp_path: Path) -> None:
    plain = [e.replace("$__rate_interval", "1m").replace("$job", "j").replace("$instance", "i") for _, e in expressions()]
    rules = {"groups": [{"name": "board", "rules": [{"record": f"panel:{n}", "expr": e} for n, e in enumerate(plain)]}]}
    (file := tmp_path / "rules.yml").write_text(json.dumps(rules))  # JSON is YAML
    done = promtool("check", "rules", str(file))
    assert (done.returncode, f"{len(plain)} rules found" in done.stdout) == (0, True), done.stdout + done.stderr


def test_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["record", "--grafana"]) == 0
    assert capsys.readouterr().out == DASHBOARD.read_text()
