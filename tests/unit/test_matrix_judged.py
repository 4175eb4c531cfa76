"""How the matrix judges what was found by what was planted, and the page it makes of that."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from leadline.findings import Evaluation, Finding, all_findings
from matrix import scenarios
from matrix.elsewhere import ELSEWHERE
from matrix.page import page, results_of
from matrix.run import Result, judge
from matrix.scenario import SCENARIOS, Expected

ROOT = SCENARIOS["idle_holder_of_a_row"]
WANTED = Expected("BLOCK-CHAIN", "pid 17", 10.0, ("application web",), "high", {"looks": 100})


def finding(**given: Any) -> Finding:
    texts = dict.fromkeys(("confidence", "title", "action", "verify", "sql", "file", "domain", "cost_base"), "")
    numbers = {"share_of_db_time": None, "samples": 1, "ts_from": 0, "ts_to": 1}
    right: dict[str, Any] = {"id": "BLOCK-CHAIN", "subject": "pid 17", "severity": "high", "statement": "application web"}
    right |= {"cost_s": 10.5, "evidence": [{"looks": 95}]}
    return Finding(**texts | numbers | right | given)  # type: ignore[arg-type]


def judged(*found: Finding, scenario: Any = ROOT, expected: tuple[Expected, ...] = (WANTED,)) -> Result:
    result = Result(scenario.name, 18, False, scenario.clean)
    judge(scenario, result, list(expected), Evaluation(list(found), [("XMIN-HORIZON", "no horizon")], [], []))
    return result


def test_what_is_as_planted_has_no_fault() -> None:
    result = judged(finding(), finding(id="IDLE-IN-XACT"), finding(id="TOP-WAIT", subject="wait Lock", severity="low"))
    assert (result.faults, result.others) == ([], [])
    assert result.judged[0].ratio == 1.05


def test_each_difference_is_a_fault() -> None:
    for wrong, text in (
        ({"cost_s": 8.9}, "cost_s 8.9, truth 10.000"),
        ({"cost_s": None}, "cost_s None, truth 10.000"),
        ({"evidence": [{"looks": 120}]}, "looks 120, truth 100.000"),
        ({"severity": "medium"}, "severity medium, at least high wanted"),
        ({"statement": "application shop"}, "does not say 'application web': application shop"),
        ({"subject": "pid 18"}, "not found, but ['pid 18']"),
    ):
        (fault,) = judged(finding(**wrong)).faults
        assert fault.endswith(text)
    (fault,) = judged(expected=(Expected("XMIN-HORIZON", "pid 1"),)).faults
    assert fault == "XMIN-HORIZON pid 1: not found (no horizon)"


def test_what_must_not_fire_and_what_a_clean_load_raises() -> None:
    never = replace(ROOT, never=frozenset({"LOCK-CONVOY"}))
    (fault,) = judged(finding(), finding(id="LOCK-CONVOY", subject="a lock", severity="info"), scenario=never).faults
    assert fault.startswith("must not fire: LOCK-CONVOY a lock")
    clean = SCENARIOS["clean_oltp"]
    noise = [finding(severity="low"), finding(id="CPU-STARVED"), finding(id="RUNQ-PRESSURE")]
    assert judged(*noise, scenario=clean, expected=()).faults == []
    (fault,) = judged(*noise, finding(severity="medium"), scenario=clean, expected=()).faults
    assert fault.startswith("above low: BLOCK-CHAIN medium pid 17")


def test_the_page_has_a_cell_for_each_run() -> None:
    missed = replace(judged(), major=17)
    clean = Result("clean_idle", 18, False, clean=True)
    text = page([judged(finding()), missed, clean, replace(judged(finding()), loops=True)])
    assert "| idle_holder_of_a_row | BLOCK-CHAIN | **missed** | 1.05 |" in text
    assert "| clean_idle |  |  | clean |" in text
    assert "2 scenarios on 17, 18, 3 runs. 1 of 2 things planted were found as they must be; 1 of 1 clean runs were clean." in text
    assert text.count("\n## ") == 2


def test_a_page_is_read_as_the_runs_that_it_shows() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/matrix.md").read_text()
    assert page(results_of(text)) == text


def test_each_rule_is_planted_or_said_to_be_elsewhere() -> None:
    """A scenario names what it expects only when it has run: its source says so before."""
    planted = set()
    for file in Path(scenarios.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Expected":
                planted.add(ast.literal_eval(node.args[0]))
    assert planted | set(ELSEWHERE) == {d.id for d in all_findings()}
    assert planted & set(ELSEWHERE) == set()
    named = [text for why in ELSEWHERE.values() for text in re.findall(r"tests/\S+\.py", why)]
    assert all((Path(__file__).parents[2] / name).exists() for name in named)


def test_there_are_enough_of_them() -> None:
    assert sum(not s.clean for s in SCENARIOS.values()) >= 60
    assert sum(s.clean for s in SCENARIOS.values()) >= 10
