"""`leadline experiment`: registered before the first trial, its trials in the order that was drawn, and what is said of them."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from books import Open, Run
from leadline.book.experiments import matching
from leadline.book.experiments.design import Design, make, seal, words
from leadline.book.experiments.drawing import drawing
from leadline.book.experiments.query import experiment
from leadline.book.experiments.text import lines
from leadline.book.experiments.trials import figure_in
from leadline.book.place import Place
from leadline.book.query import Book, Filter
from leadline.errors import LeadlineError
from leadline.lab.paired import trial_order

PRINTS = {"baseline": "echo value=10", "variant": "echo value=9"}
VALUE = ["--metric", r"value=([0-9.]+)", "--better", "less"]


Begin = Callable[[list[str]], subprocess.Popen[str]]


@pytest.fixture
def begin(place: Place) -> Iterator[Begin]:
    """begin(line): an experiment whose first pair has begun, in a group of processes that is killed in any case."""
    begun: list[subprocess.Popen[str]] = []

    def start(line: list[str]) -> subprocess.Popen[str]:
        begun.append(subprocess.Popen([sys.executable, "-m", "leadline", *line], stderr=subprocess.PIPE, text=True, start_new_session=True))
        said = begun[-1].stderr
        assert said is not None
        assert said.readline().startswith("registered ")
        assert said.readline() == "pair 1 of 10\n"
        return begun[-1]

    yield start
    for one in begun:
        with suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        assert one.stderr is not None
        one.stderr.close()


def asked(**more: Any) -> list[str]:
    return [word for name, value in (PRINTS | more).items() for word in (f"--{name}", str(value))]


def found(book: Book, text: str = "last", name: str = "experiment") -> dict[str, Any]:
    """The newest experiment of a name, as views show it."""
    runs = [run for run in book.runs(limit=200) if run["kind"] == "experiment" and run["name"] == name]
    details = book.details(runs[0])
    seen = experiment(book.store, details)
    assert seen is not None
    return details | {"experiment": seen}


def test_a_planted_difference_is_found(leadline: Run, open_book: Open) -> None:
    done = leadline("experiment", *asked(pairs=6, hypothesis="nine is less", seed=7), *VALUE, "--name", "planted")
    assert done.returncode == 0, done.stderr
    assert "less: the variant has 0.9 times the baseline's figure (0.9 to 0.9, 95 % interval, 6 pairs), which is better" in done.stdout
    book = open_book()
    run = found(book, name="planted")
    e = run["experiment"]
    assert (run["status"], run["labels"]["verdict"], e["verdict"], e["good"], e["try"]) == ("ok", "less", "less", True, 1)
    assert (e["design"]["hypothesis"], e["differs"], e["tried"]) == ("nine is less", [], "")
    assert {name: run["metrics"][name] for name in ("ratio", "ratio_low", "ratio_high")} == pytest.approx(
        {"ratio": 0.9, "ratio_low": 0.9, "ratio_high": 0.9}
    )
    assert [pair["ratio"] for pair in e["pairs"]] == [0.9] * 6
    assert len(run["children"]) == 12
    shown = leadline("book", "show", run["uid"]).stdout
    assert "nine is less" in shown and "less: the variant has 0.9" in shown
    twin = json.loads(leadline("book", "show", run["uid"], "--json").stdout)
    assert twin["experiment"] == e
    page = Path(str(leadline("book", "export", run["uid"], "-o", book.place.root.parent / "page.html").stdout).strip()).read_text()
    assert "nine is less" in page and 'class="interval"' in page


def test_trials_are_runs_in_the_order_that_was_registered(leadline: Run, open_book: Open) -> None:
    leadline("experiment", *asked(pairs=4, seed=3, warmup=1, prepare="true"), *VALUE)
    book = open_book()
    run = found(book)
    drawn = "".join("BV"[on] for on in trial_order(4, random.Random(3)))
    assert run["experiment"]["design"]["order"] == drawn
    parts = [book.find(uid) for uid in run["children"]]
    assert {part["kind"] for part in parts} == {"leg"}
    names = {"B": "experiment: baseline", "V": "experiment: variant"}
    trials = [part for part in parts if "leg" in part["inputs"]]
    assert [part["name"] for part in trials] == [names[letter] for letter in drawn]
    assert [part["inputs"]["leg"] for part in trials] == list(range(1, 9))
    assert [part["name"] for part in parts[:4]] == ["experiment: prepare", names["B"], "experiment: prepare", names["V"]]
    assert len(parts) == 2 * (2 + 8)
    assert {part["inputs"]["registered"] for part in parts} == {run["experiment"]["seal"]}
    assert run["experiment"]["text"] == "no verdict: 4 pairs, and 6 are needed (--pairs 6 or more)"
    assert "ratio_low" not in run["metrics"]


def test_the_design_is_there_before_the_first_trial_whatever_kills_the_experiment(begin: Begin, open_book: Open) -> None:
    line = ["experiment", "--baseline", "sleep 60", "--variant", "sleep 61", "--hypothesis", "never known", "--seed", "1"]
    waiting = begin(line)
    book, deadline = open_book(), time.monotonic() + 30
    while not (trials := [run for run in book.runs(limit=200) if run["kind"] == "leg"]):
        assert time.monotonic() < deadline
        book.refresh()
    run = found(book)
    os.killpg(waiting.pid, signal.SIGKILL)  # all of them at once: who waits, the supervisors, the experiment, the trial
    waiting.wait()
    while found(book)["status"] == "running":
        assert time.monotonic() < deadline
        book.refresh()
    run = found(book)
    e = run["experiment"]
    assert (run["status"], e["design"]["hypothesis"], e["verdict"]) == ("lost", "never known", "none")
    assert e["text"] == "no verdict: it ended after 0 of 20 trials"
    assert e["registered"] < trials[0]["started"]
    row = book.store.rows("select design_json, seal, registered from experiment")[0]
    assert row["seal"] == seal(run["uid"], row["registered"], row["design_json"]) == trials[0]["inputs"]["registered"]


def test_a_repeat_says_which_try_it_is_and_replaces_nothing(leadline: Run, open_book: Open) -> None:
    for pairs, seed in ((6, 1), (7, 2), (8, 3)):
        assert leadline("experiment", *asked(pairs=pairs, seed=seed), *VALUE).returncode == 0
    other = leadline("experiment", *asked(pairs=6, variant="echo value=8"), *VALUE, "--name", "other")
    assert "try of this question" not in other.stdout
    book = open_book()
    third = found(book)
    e = third["experiment"]
    assert (e["try"], len(e["earlier"]), e["tried"][:42]) == (3, 2, "this is the 3rd try of this question: 3 tr")
    assert [one["verdict"] for one in e["earlier"]] == ["less", "less"]
    assert "before: " in leadline("book", "show", third["uid"]).stdout
    first = book.details(book.find(e["earlier"][0]["uid"]))
    assert experiment(book.store, first)["try"] == 1  # type: ignore[index]  # later tries change nothing of it
    with book.store.writing() as db:
        db.execute("delete from run where uid = ?", (first["uid"],))
    assert found(book)["experiment"]["try"] == 3  # also when an earlier one was pruned


def test_verdicts_of_two_experiments_are_compared(leadline: Run, open_book: Open) -> None:
    for variant in ("echo value=9", "echo value=11"):
        leadline("experiment", *asked(variant=variant, pairs=6), *VALUE)
    first, last = [run["uid"] for run in reversed(open_book().runs(Filter(kind="experiment")))]
    differences = json.loads(leadline("book", "diff", first, last, "--json").stdout)["differences"]
    found = {f"{one['part']} {one['name']}": (one["one"], one["other"]) for one in differences}
    assert found["label verdict"] == ("less", "more")
    assert found["metric ratio"] == (pytest.approx(0.9), pytest.approx(1.1))


def test_trials_are_not_in_the_way_of_other_runs(leadline: Run, open_book: Open) -> None:
    leadline("run", "--name", "before", "--", "true")
    leadline("experiment", *asked(pairs=2), *VALUE)
    listed = json.loads(leadline("book", "list", "--json").stdout)["runs"]
    assert [run["name"] for run in listed] == ["experiment", "before"]
    for kind in ("trial", "leg"):  # as it is stored
        assert len(json.loads(leadline("book", "list", "--kind", kind, "--json").stdout)["runs"]) == 4
    assert len(json.loads(leadline("book", "list", "--name", "experiment: variant", "--json").stdout)["runs"]) == 2
    assert open_book().find("last")["kind"] == "experiment"


def test_a_trial_that_fails_ends_it_and_is_named(leadline: Run, open_book: Open) -> None:
    done = leadline("experiment", *asked(variant="sh -c 'exit 3'"), *VALUE, "--seed", "1")
    assert done.returncode == 2
    book = open_book()
    run = found(book)
    [failed] = [trial for trial in run["experiment"]["legs"] if trial["problem"]]
    said = f"trial {failed['n'] + 1} of 20 (variant, run {failed['run'][:5]}) failed: exit code 3"
    assert said in done.stderr and run["experiment"]["text"] == f"no verdict: {said}"
    assert (run["status"], run["experiment"]["verdict"], "ratio" in run["metrics"]) == ("failed", "none", False)


def test_trials_that_fail_may_be_left_out_and_are_counted(leadline: Run, open_book: Open, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"sh -c 'echo x >> {count}; [ $(wc -l < {count}) -ne 2 ] && echo value=9'"
    assert leadline("experiment", *asked(variant=script, pairs=8), *VALUE, "--keep-going").returncode == 0
    e = found(open_book())["experiment"]
    assert e["verdict"] == "less"
    assert e["text"].endswith("; 1 of 8 pairs are left out, in which trials failed (0 of the baseline, 1 of the variant)")
    assert [pair["problem"] for pair in e["pairs"] if pair["problem"]] == ["variant: exit code 1"]


@pytest.mark.parametrize(
    ("variant", "problem"),
    [("echo other", "the metric is not in the output"), ("echo value=1.2.3", "'1.2.3' is no number"), ("echo value=0", "0 has no ratio"),
     ("true", "the metric is not in the output"), ("/no/such/program", "the command cannot be started: No such file or directory")],
)  # fmt: skip
def test_what_was_not_measured_is_told(leadline: Run, variant: str, problem: str) -> None:
    done = leadline("experiment", *asked(variant=variant), *VALUE)
    assert (done.returncode, f"failed: {problem}" in done.stderr) == (2, True), done.stderr


def test_what_changes_meanwhile_stands_above_the_ratios(leadline: Run, open_book: Open, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_text("value=10\n")
    done = leadline("experiment", *asked(baseline=f"cat {data}", variant=f"sh -c 'echo value=9; echo >> {data}'", pairs=6), *VALUE)
    [change] = found(open_book())["experiment"]["differs"]
    assert change["fact"] == f"file {data}"
    assert done.stdout.index("CHANGED") < done.stdout.index("ratio")


def test_a_metric_that_would_be_looked_for_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "MOST_CPU_S", 1)
    line = 60 * b"a" + b"!\n"
    for pattern in (r"^(a+)+$", r"^(a|a)*$", r"^(a|aa)+$"):
        assert matching.last_match(pattern, b"a") == "a"
        with pytest.raises(matching.TooMuch):
            matching.last_match(pattern, line)
    monkeypatch.setattr(matching, "MOST_MEMORY", 64 << 20)
    with pytest.raises(matching.TooMuch):
        matching.last_match(r"(?:a|b)*(c)", 4_000_000 * b"a")
    assert matching.last_match(r"tps = ([0-9.]+)", b"tps = 1\n\xff tps = 2.5\n") == "2.5"
    assert matching.last_match(r"(x)?tps", b"tps") == "" and matching.last_match(r"(x)", b"y") is None


def test_a_figure_that_is_given_up_says_why(leadline: Run, open_book: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    assert leadline("run", "--", "echo", 60 * "a" + "!").returncode == 0
    book = open_book()
    monkeypatch.setattr(matching, "MOST_CPU_S", 1)
    value, problem = figure_in(book.place, book.find("last")["uid"], "^(a+)+$")
    assert (value, problem) == (None, "to look for the metric in the output takes more than 10 s")


@pytest.mark.parametrize("metric", ["seconds", "cpu_seconds"])
def test_what_trials_used_is_what_their_runs_say(leadline: Run, open_book: Open, metric: str) -> None:
    busy = f"{sys.executable} -c 'sum(range(100000))'"
    done = leadline("experiment", "--baseline", busy, "--variant", f"{busy} ''", "--pairs", "1", "--metric", metric)
    assert done.returncode == 0, done.stderr
    book = open_book()
    name = {"seconds": "wall_s", "cpu_seconds": "cpu_s"}[metric]
    trials = found(book)["experiment"]["legs"]
    assert [trial["value"] for trial in trials] == [book.details(book.find(trial["run"]))["metrics"][name] for trial in trials]


def test_an_interrupted_experiment_ends_its_trial_and_has_no_verdict(begin: Begin, open_book: Open) -> None:
    line = ["experiment", "--baseline", "sleep 60", "--variant", "sleep 61"]
    waiting = begin(line)
    book, deadline = open_book(), time.monotonic() + 30
    while not [run for run in book.runs(limit=200) if run["kind"] == "leg"]:
        assert time.monotonic() < deadline
        book.refresh()
    os.killpg(waiting.pid, signal.SIGINT)  # as Ctrl-C does
    assert waiting.wait(30) == 130
    book.refresh()
    run = found(book)
    assert (run["status"], run["experiment"]["verdict"]) == ("cancelled", "none")
    [trial] = [book.find(uid) for uid in run["children"]]
    assert trial["status"] == "cancelled"


def test_a_cancelled_experiment_ends_with_its_trial(begin: Begin, leadline: Run, open_book: Open) -> None:
    waiting = begin(["experiment", "--baseline", "sleep 60", "--variant", "sleep 61"])
    book, deadline = open_book(), time.monotonic() + 30
    while not [run for run in book.runs(limit=200) if run["kind"] == "leg"]:
        assert time.monotonic() < deadline
        book.refresh()
    assert leadline("book", "cancel", "last", "--wait").returncode == 0
    assert waiting.wait(30) == 130
    book.refresh()
    run = found(book)
    assert (run["status"], book.find(run["children"][0])["status"]) == ("cancelled", "cancelled")


@pytest.mark.parametrize(
    ("variant", "pairs", "carried_out", "code", "word", "status"),
    [
        ("echo value=9", 6, 0, 0, "less", "ok"), ("echo value=10", 6, 0, 0, "equivalent", "ok"), ("echo value=11", 6, 0, 1, "more", "ok"),
        ("echo value=11", 3, 0, 3, "none", "ok"), ("false", 6, 2, 2, "none", "failed"),
        ("sh -c 'echo x >> {count}; echo value=$(( 9 + $(wc -l < {count}) % 3 ))'", 6, 0, 3, "inconclusive", "ok"),
    ],
)  # fmt: skip
def test_the_exit_code_tells_the_verdict_where_asked(
    leadline: Run, open_book: Open, tmp_path: Path, variant: str, pairs: int, carried_out: int, code: int, word: str, status: str
) -> None:
    """And without being asked, only whether it could be carried out. What the logbook has of it is the same."""
    line = asked(variant=variant.format(count=tmp_path / "count"), pairs=pairs)
    for more, expected in (((), carried_out), (("--exit-code",), code)):
        done = leadline("experiment", *line, *VALUE, *more)
        assert done.returncode == expected, done.stdout + done.stderr
        run = found(open_book())
        assert (run["experiment"]["verdict"], run["status"]) == (word, status)


def test_a_detached_experiment_goes_on_by_itself(leadline: Run, open_book: Open, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = f"sh -c 'until [ -e {go} ]; do sleep 0.02; done; echo value=9'"
    done = leadline("experiment", *asked(variant=waits, pairs=6), *VALUE, "--detach", "--name", "alone", cwd=tmp_path)
    uid = done.stdout.strip()
    assert (done.returncode, done.stderr) == (0, f"next: leadline book log {uid[:5]} --follow\n")
    assert open_book().find(uid)["status"] == "running"
    go.touch()
    said = leadline("book", "log", uid, "--follow").stdout
    assert "less: the variant has 0.9 times the baseline's figure" in said
    book = open_book()
    run = found(book, name="alone")
    assert (run["uid"], run["status"], run["cwd"], run["experiment"]["verdict"]) == (uid, "ok", str(tmp_path), "less")
    # It asks the same as one in the foreground of the same folder.
    assert "this is the 2nd try" in leadline("experiment", *asked(variant=waits, pairs=6), *VALUE, cwd=tmp_path).stdout
    both = leadline("experiment", *asked(), *VALUE, "--detach", "--exit-code")
    assert (both.returncode, "a detached experiment has no verdict yet" in both.stderr) == (2, True)


def test_without_a_book_nothing_is_run(leadline: Run, tmp_path: Path) -> None:
    touched = tmp_path / "touched"
    done = leadline("experiment", "--baseline", f"touch {touched}", "--variant", "true", env={"LEADLINE_BOOK": "off"})
    assert (done.returncode, "the book is off" in done.stderr, touched.exists()) == (2, True, False)


def test_secrets_of_commands_are_not_kept(leadline: Run, place: Place, open_book: Open) -> None:
    secret = "s3cr3t-of-a-command"
    leadline("experiment", *asked(baseline=f"echo value=10 --password {secret}", variant="echo value=9", pairs=1), *VALUE)
    book = open_book()
    run = found(book)
    assert run["experiment"]["design"]["baseline"] == "echo value=10 --password '***'"
    assert secret not in json.dumps([run, *book.store.rows("select argv_json, inputs_json from run where kind = 'experiment'")])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"variant": "a | b"}, "variant has |, which is for a shell"), ({"baseline": "a $HOME"}, "baseline has $, which is for a shell"),
        ({"baseline": "'a"}, "baseline cannot be divided into words"),
        ({"variant": " "}, "variant is empty, or has more than 8,000 letters"),
        ({"metric": "second"}, "there is no metric 'second'"), ({"metric": "(x"}, "the metric is no regular expression"),
        ({"metric": "(x)"}, "say whether less or more of it is better"), ({"margin": "2"}, "'2' is not a margin"),
        ({"margin": "0%"}, "'0%' is not a margin"), ({"pairs": 0}, "pairs is not from 1 to 1,000"),
        ({"warmup": -1}, "warmup is not from 0 to 1,000"),
        ({"pairs": True}, "pairs of an experiment is no whole number"), ({"rounds": 3}, "an experiment has no rounds"),
        ({"better": "worse"}, "better is neither less nor more"), ({"baseline": None}, "the experiment has no baseline"),
    ],
)  # fmt: skip
def test_a_design_that_makes_no_sense_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(LeadlineError) as refused:
        make(PRINTS | given)
    assert refused.value.message == said


@pytest.mark.parametrize("command", ["awk '{print $1; exit}' f", 'sh -c "a | b"', r"grep a\|b f", "seq {rows}"])
def test_what_is_quoted_is_for_the_command(command: str) -> None:
    assert len(words(command, "baseline")) > 1


def test_a_design_goes_through_its_options_unchanged() -> None:
    more = {"metric": "tps = (.*)", "better": "more", "margin": "0.07%", "hypothesis": "-x y", "seed": 5, "keep_going": True}
    design = make(PRINTS | more)
    given = {name: value for option in design.as_options() if "=" in option for name, _, value in [option[2:].partition("=")]}
    again: dict[str, Any] = {name: int(value) if name in ("pairs", "warmup", "seed") else value for name, value in given.items()}
    assert make(again | {"keep_going": True}) == design
    assert "--keep-going" in design.as_options()
    assert design.question == Design(**PRINTS, metric="tps = (.*)").question != Design(**PRINTS).question


def test_what_is_drawn_lies_within_the_drawing() -> None:
    pairs = [{"pair": n, "ratio": 0.8 + n / 50} for n in range(1, 9)]
    text = drawing({"pairs": pairs, "ratio": 0.9, "low": 0.85, "high": 0.95, "design": {"margin": 0.02}, "verdict": "faster"})
    xs = [float(x) for x in re.findall(r'(?:cx|x|x1|x2)="([0-9.-]+)"', text)]
    assert text.count('class="dot"') == 8 and min(xs) > 40 and max(xs) < 520
    assert drawing({"pairs": [], "ratio": None, "low": None, "high": None, "design": {"margin": 0.02}, "verdict": None}) == ""


def test_lines_of_one_that_runs_say_no_verdict() -> None:
    design = {**{name: "" for name in ("hypothesis", "prepare")}, "baseline": "a", "variant": "b", "metric": "seconds", "better": "less",
              "margin": 0.02, "pairs": 1, "warmup": 0, "seed": 1, "order": "BV"}  # fmt: skip
    found = {"design": design, "seal": "5ea1", "differs": [], "pairs": [], "text": "", "tried": "", "earlier": []}
    assert not [line for line in lines(found) if line.startswith("verdict")]
