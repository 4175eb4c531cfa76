"""Advice of findings: it has the values of its case, and nothing that does not apply to it."""

from __future__ import annotations

import re

import advice_review
import pytest
from leadline.findings import all_findings
from leadline.findings.advice import MAJORS, blocks, filled, general, names, of_server

RULES = {d.id: d for d in all_findings()}
NO_RULE = {"CRAM-MD5", "DIGEST-MD5", "SHA-256"}
TEXT = """First look.

- {?idle} Run `f({pid})`
  now.
- {!idle} It is busy.
- {!from_16} Upgrade.
```sql
select {pid}
```

Last, for {role}."""


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, "First look.\n\n- It is busy."),
        ({"idle": False, "from_16": True}, "First look.\n\n- It is busy."),
        ({"idle": True, "pid": 7}, "First look.\n\n- Run `f(7)`\n  now.\n- Upgrade.\n```sql\nselect 7\n```"),
        ({"pid": 7, "from_16": True, "role": "app"}, "First look.\n\n- It is busy.\nLast, for app."),
    ],
)
def test_blocks_come_with_their_facts_or_not_at_all(facts: dict[str, object], expected: str) -> None:
    assert filled(TEXT, facts) == expected


def test_in_general_facts_are_named() -> None:
    assert "- [idle] Run `f(PID)`\n  now.\n- [not idle] It is busy.\n- [before 16] Upgrade." in general(TEXT)
    assert general("- {?is_active}{?from_17} Now.") == "- [active, 17 and later] Now."


def test_the_version_gives_facts() -> None:
    assert of_server(None) == {}
    assert {name for name, there in of_server(160_004).items() if there} == {f"from_{number}" for number in range(13, 17)}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_the_facts_that_its_texts_ask_for(rule: str) -> None:
    wanted = names(RULES[rule].sections["What to do"]) | names(RULES[rule].sections["How to verify"])
    given = RULES[rule].query.partition("to_json({")[2] if ") as facts" in RULES[rule].query else ""
    made = RULES[rule].query.rpartition("to_json({")[2].partition("}) as facts")[0] if given else ""
    there = set(re.findall(r"(?:^|[,{]\s*)([a-z_]+): ", made))
    assert wanted <= there | {f"from_{number}" for number in MAJORS}
    assert there <= wanted, "facts that no text uses"
    others = [text for heading, text in RULES[rule].sections.items() if heading not in ("What to do", "How to verify")]
    assert not names(" ".join(others)), "only advice has facts"


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_that_is_named_exists(rule: str) -> None:
    said = " ".join([*RULES[rule].sections.values(), RULES[rule].query, RULES[rule].wrong_when])
    assert set(re.findall(r"(?<![\w-])[A-Z]{2,}(?:-[A-Z0-9]{2,})+(?![\w-])", said)) <= RULES.keys() | NO_RULE


def test_each_sentence_of_advice_has_been_reviewed() -> None:
    """docs/reference/advice.md: python tests/support/advice_review.py renews it, and a reviewer replaces each `?`."""
    assert set(advice_review.reviewed().values()) <= advice_review.VERDICTS.keys(), "a sentence is new"
    assert advice_review.PAGE.read_text(encoding="utf-8") == advice_review.page()


@pytest.mark.parametrize("rule", RULES)
def test_a_condition_stands_in_front_of_its_block(rule: str) -> None:
    """Elsewhere it would decide about all that stands before it, too."""
    for heading in ("What to do", "How to verify"):
        for block in blocks(RULES[rule].sections[heading]):
            assert not re.search(r"\{[?!]", re.sub(r"^(- )?(\{[?!]\w+\} ?)*", "", block.lstrip())), block


def test_a_sentence_ends_outside_of_commands_only() -> None:
    text = "First. Run `select 1; Select 2. Done`. Then see THIS-RULE.\n- Next\n  line:\n```sql\nselect 1;\n-- no\nselect 2;\n```"
    assert advice_review.sentences(text) == [
        "First.",
        "Run `select 1; Select 2. Done`.",
        "Then see THIS-RULE.",
        "Next line:",
        "`select 1; select 2;`",
    ]
