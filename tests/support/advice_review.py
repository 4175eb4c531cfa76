"""The review of advice, sentence by sentence: docs/reference/advice.md keeps the verdicts.

python tests/support/advice_review.py    writes it anew: a sentence that is new or changed gets a `?`, which a test refuses
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from leadline.findings import all_findings
from leadline.findings.advice import blocks, general

PAGE = Path(__file__).parents[2] / "docs/reference/advice.md"
VERDICTS = {
    "fact": "true on 13 to 18 or on the versions named, by the manual of the server, the kernel or the tool",
    "look": "reads something and changes nothing",
    "safe": "a change that loses no data, and that can be taken back",
    "price": "a change with a price (a restart, a strong lock, memory, an ended transaction, lost data), which the advice names",
    "habit": "a rule of thumb of the field: often right, to be tried",
}
HEAD = f"""<!-- The verdicts are a reviewer's. `python tests/support/advice_review.py` renews the sentences and keeps the verdicts. -->

# Advice, sentence by sentence

What the rules advise, and what a reviewer says about each sentence. Each command and query in it is run on PostgreSQL 13 to 18 by
`tests/live/test_advice_runs.py`. A condition in brackets says when the sentence is shown, and words in capitals stand for the values of the
finding. [findings.md](findings.md) has the whole text of each rule.

{chr(10).join(f"- **{name}**: {meaning}." for name, meaning in VERDICTS.items())}
"""


def sentences(text: str) -> list[str]:
    """Of a text of advice. What stands in backticks or in a fence of code is never divided."""
    return [sentence for block in blocks(text) for sentence in _of_block(block)]


def _of_block(block: str) -> Iterator[str]:
    for number, part in enumerate(re.split(r"^```\w*\n?", block, flags=re.MULTILINE)):
        if number % 2:
            yield "`" + " ".join(line for line in part.splitlines() if not line.startswith("--")) + "`"
            continue
        words = " ".join(part.split()).removeprefix("- ")
        pieces = re.split(r"(`[^`]*`)", words)
        sentence = ""
        for piece in pieces:
            if piece.startswith("`"):
                sentence += piece
                continue
            *ended, rest = re.split(r"(?<=[.?!])\s+(?=[A-Z*]|$)", piece)
            for end in ended:
                yield (sentence + end).strip()
                sentence = ""
            sentence += rest
        if sentence.strip():
            yield sentence.strip()


def reviewed() -> dict[tuple[str, str], str]:
    """The verdict by rule and sentence, as the page has it."""
    found, rule = {}, ""
    for line in PAGE.read_text(encoding="utf-8").splitlines() if PAGE.exists() else ():
        if line.startswith("## "):
            rule = line[3:]
        elif rule and (row := re.fullmatch(r"\| ([a-z?]+) \| (.*) \|", line)) and row[1] != "verdict":
            found[rule, row[2].replace("\\|", "|")] = row[1]
    return found


def page() -> str:
    verdicts, lines = reviewed(), [HEAD]
    for rule in all_findings():
        lines += [f"## {rule.id}", "", "| verdict | sentence |", "|---|---|"]
        for heading in ("What to do", "How to verify"):
            for sentence in sentences(general(rule.sections[heading])):
                cell = sentence.replace("|", "\\|")
                lines.append(f"| {verdicts.get((rule.id, sentence), '?')} | {cell} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.exit("sentences without a verdict: " + ", ".join({rule for (rule, _), verdict in reviewed().items() if verdict == "?"} or {"none"}))
