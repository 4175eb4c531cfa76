"""An answer never becomes a part of a program: templates with such a command are refused when they are saved, and when they are started."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from leadline.book.place import Place
from leadline.book.store import Store
from leadline.errors import LeadlineError
from leadline.server.launch import code_words, survey
from leadline.server.operation import perform
from leadline.server.rights import OWNER
from leadline.server.table import BY_NAME

SURVEY = {
    "text": {"kind": "str"}, "n": {"kind": "int"}, "dry": {"kind": "bool"}, "where": {"kind": "enum", "choices": ["eu-1", "us.2"]},
    "odd": {"kind": "enum", "choices": ["a b", "$(x)"]},
}  # fmt: skip
QUESTIONS = survey.read_survey(SURVEY)

REFUSED = [
    "sh -c 'echo {text}'", "sh -c \"echo '{text}'\"", "sh -c {text}", "sh -ec 'echo {text}'", "bash -lc 'echo {text}'",
    "/usr/bin/bash -c 'x={text}; echo $x'", "bash -o pipefail -c 'echo {text} | cat'", "bash -c -e 'echo {text}'",
    "env A=1 sh -c 'echo {text}'",
    "sudo -u app sh -c 'echo {text}'", "timeout 5 sh -c 'echo {text}'", "docker exec db sh -c 'echo {text}'", "busybox sh -c 'echo {text}'",
    "python3 -c 'print(\"{text}\")'", "python3.12 -W ignore -c 'print({text})'", "perl -ne 'print if /{text}/'", "perl -e 'print {text}'",
    "ruby -e 'puts {text}'", "node --eval 'console.log({text})'", "node --eval='x({text})'", "php -r 'echo {text};'",
    "su - app -c 'ls {text}'", "flock /tmp/l -c 'ls {text}'", "env -S 'ls {text}'", "awk '/{text}/ {print}' file", "sed 's/{text}/x/' file",
    "sed -n -e 's/{text}/x/' file", "ssh db1 ls {text}", "ssh -p 22 app@db1 'ls {text}'", "watch -n 1 'ls {text}'", "sh -c 'echo {odd}'",
    "xargs sh -c 'echo {text}'", "find /srv -exec sh -c 'echo {text}' ;", "nice -n 5 bash -xc 'ls {text}'",
    "leadline run -- sh -c 'ls {text}'",
]  # fmt: skip

ALLOWED = [
    "echo {text}", "./load.sh -c {text}", "python3 load.py -c {text}", "sh load.sh -c {text}", "bash -o pipefail load.sh {text}",
    "sh -c 'echo \"$1\"' sh {text}", "bash -c 'for x in \"$@\"; do echo $x; done' bash {text} {odd}", "sh -c 'echo {n} {dry} {where}'",
    "python3 -c 'import sys; print(sys.argv[1])' {text}", "awk -v x={text} '{print x}' file", "ssh db1 sleep {n}",
    "psql -v name={text} -f a.sql",
    "awk '{print $1}' {text}", "sed s/a/b/ {text}", "sh -c 'echo ${HOME} {other}'", "env NAME={text} ./load.sh", "grep -c {text} file",
]  # fmt: skip


@pytest.mark.parametrize("command", REFUSED)
def test_an_answer_that_would_be_code_is_refused(command: str) -> None:
    with pytest.raises(LeadlineError, match="would be a part of a program") as refused:
        code_words.check(shlex.split(command), QUESTIONS)
    assert refused.value.hint and "sh -c 'echo \"$1\"' sh {" in refused.value.hint


@pytest.mark.parametrize("command", ALLOWED)
def test_an_answer_that_is_an_argument_is_none(command: str) -> None:
    code_words.check(shlex.split(command), QUESTIONS)


def test_templates_are_refused_when_they_are_saved_and_when_they_are_started(tmp_path: Path) -> None:
    place = Place(tmp_path / "book")
    store = Store(place)

    def do(operation: str, **given: object) -> dict[str, object]:
        answer: dict[str, object] = perform(BY_NAME[operation], OWNER, store, place, given)
        return answer

    asks = {"text": {"kind": "str"}}
    bad = "sh -c 'echo {text}'"
    with pytest.raises(LeadlineError, match="would be a part of a program"):
        do("template.save", project="main", name="bad", command=bad, survey=asks)
    design = {"baseline": bad, "variant": "true"}
    with pytest.raises(LeadlineError, match="would be a part of a program"):
        do("template.save", project="main", name="bad", kind="experiment", experiment=design, survey=asks)
    saved = do("template.save", project="main", name="old", command="echo {text}", survey=asks)
    with store.writing() as db:  # as one that was saved before
        [row] = store.rows("select spec_json from template")
        spec = json.loads(row["spec_json"]) | {"command": shlex.split(bad)}
        db.execute("update template set spec_json = ?", (json.dumps(spec),))
    with pytest.raises(LeadlineError, match="would be a part of a program"):
        do("template.start", template=saved["template"], inputs={"text": "x; id"})
    assert store.rows("select 1 from launch") == []
    store.close()
