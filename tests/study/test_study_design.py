"""The design of a study: its file, its cells, what may not be said without one of them, and the seal."""

from __future__ import annotations

import json
import math
import os
import random
from pathlib import Path
from typing import Any

import pytest
from leadline.book.experiments.cells import all_cells, forbidden, interactions, orders_of
from leadline.book.experiments.effects import judge
from leadline.book.experiments.studies import is_drawn, read_design
from leadline.book.experiments.trials import check_of
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.study.design import alike, exclude, include, of_text, parse, read, ready, with_levels, with_setting
from leadline.study.loads import filled
from leadline.study.planning import bytes_of_study, plan, seconds_of_study

SEED_001 = """
question = "Is the I/O of our batch job slower with KAIO?"
[[factor]]
name = "updates"
command = true
levels = { yes = "--updates", no = "" }
[[factor]]
name = "kaio"
environment = "KAIOOFF"
levels = { on = "0", off = "1" }
[[exclude]]
updates = "no"
kaio = "off"
reason = "nobody measured it"
[load]
command = "job {updates}"
"""


def test_each_block_has_each_cell_once_in_an_order_of_the_seed() -> None:
    blocks = orders_of(5, 400, 7)
    assert all(sorted(block) == [0, 1, 2, 3, 4] for block in blocks)
    assert orders_of(5, 400, 7) == blocks != orders_of(5, 400, 8)
    first = [sum(block[0] == cell for block in blocks) for cell in range(5)]
    assert min(first) > 50, "each cell must come first as often as any other"


def test_the_cell_that_seed_001_lacked_is_empty_and_says_what_it_forbids() -> None:
    study = parse(SEED_001, "job")
    assert [study.cell_name(cell) for cell in study.cells] == ["updates=yes, kaio=on", "updates=yes, kaio=off", "updates=no, kaio=on"]
    assert forbidden(study.names, study.baseline, ("no", "off")) == ["whether updates=no and kaio=off act together (their interaction)"]
    alone = forbidden(study.names, study.baseline, ("no", "on"))
    assert alone == ["the effect of updates=no alone", "whether it acts together with kaio"]
    assert "any factor alone" in forbidden(study.names, study.baseline, study.baseline)[0]
    filled = include(study, "updates=no, kaio=off")
    assert len(filled.cells) == 4 and not filled.excluded
    with pytest.raises(LeadlineError, match="no cell that the design leaves out"):
        include(filled, "updates=no,kaio=off")


def test_what_is_sealed_is_read_again_as_the_same_study() -> None:
    study = parse(SEED_001, "job")
    text = study.as_text()
    assert of_text(text) == study and of_text(text).as_text() == text
    design = read_design(text)
    assert is_drawn(design) and len(design["order"]) == 10
    forged = json.loads(text)
    forged["order"][0].reverse()
    assert not is_drawn(read_design(json.dumps(forged)))
    del forged["order"][0]
    with pytest.raises(ValueError, match="no design"):
        read_design(json.dumps(forged))


def test_a_secret_is_not_sealed() -> None:
    study = parse(SEED_001.replace("job {updates}", "job {updates} --password=hunter2"), "job")
    assert "hunter2" not in study.as_text()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("question =", "questoin ="), "a study has no questoin"),
        (('levels = { on = "0", off = "1" }', 'levels = ["0"]'), "needs two levels or more"),
        (('levels = { on = "0", off = "1" }', 'levels = ["0", "0"]'), "needs two levels or more"),
        (('levels = { on = "0", off = "1" }', "levels = 5"), "needs two levels or more"),
        (('environment = "KAIOOFF"', 'environment = "KAIO OFF"'), "environment of a factor is a name"),
        (('environment = "KAIOOFF"', 'environment = "K"\nsetting = "k"'), "a factor is exactly one of"),
        (('updates = "no"', 'updates = "never"'), "updates=never is no level"),
        (("{updates}", ""), "{updates} stands in no command"),
        (("job {updates}", "job {updates} | wc"), "is for a shell"),
        (("[load]", "[[load]]"), "the design has no load"),
        (("[load]", "margin = 3\n[load]"), "a exclude has no margin"),
        (("question =", "repetitions = 0\nquestion ="), "repetitions is no whole number from 1"),
        (("question =", 'margin = "3"\nquestion ='), "is not a margin"),
        (("question =", "[["), "the design is no TOML"),
        (('name = "kaio"', 'name = "updates"'), "names of their own"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(change: tuple[str, str], said: str) -> None:
    text = SEED_001.replace(*change)
    assert text != SEED_001
    if "a exclude" in said:
        text = SEED_001.replace("[load]", 'bogus = "x"\n[load]')
        said = "bogus=x is no level of a factor"
    with pytest.raises(LeadlineError) as caught:
        parse(text, "job", "job.toml")
    assert said in caught.value.message and caught.value.where.startswith("job.toml") and caught.value.kind == "usage"


def test_odd_files_are_refused_and_never_raise_anything_else() -> None:
    rng = random.Random(5)
    lines = SEED_001.splitlines()
    for _ in range(300):
        odd = [line for line in lines if rng.random() > 0.15]
        rng.shuffle(odd)
        try:
            parse("\n".join(odd), "odd")
        except LeadlineError as e:
            assert e.kind == "usage"


def test_every_ready_study_can_be_read_planned_and_calibrated() -> None:
    assert "settings" in ready()
    for name in ready():
        study = read(name)
        assert study.question.endswith("?") and study.needs and study.path == name
        found = plan(study, None)
        assert found["legs"] == len(study.cells) * study.repetitions and found["least_repetitions"] <= study.repetitions, name
        assert (seconds_of_study(study, {}) or 1) > 0 and bytes_of_study(study) >= 0
        same = alike(study)
        assert len(same.cells) == 2 and of_text(same.as_text()) == same
        assert not any(f"{{{factor.name}}}" in str((same.load, same.reset)) for factor in study.factors), "a level has its place"
    assert alike(read("keep-up")).server["replay_cpu"] == "10%" and "--rate 60 --for {for}" in alike(read("keep-up")).load["command"]
    settings = alike(read("conflict")).server["standby_settings"]
    assert settings["hot_standby_feedback"] == "off" and settings["wal_receiver_status_interval"] == "1s"


def test_a_setting_of_the_command_line_takes_the_place_of_those_of_the_design() -> None:
    study = with_setting(read("settings"), ["work_mem=4MB, 64MB,1GB"])
    assert [(one.target, one.labels) for one in study.factors] == [("work_mem", ["4MB", "64MB", "1GB"])]
    assert "work_mem (64MB or 1GB instead of 4MB)" in study.question and study.hypothesis == ""
    assert with_setting(read("settings"), ["wal_compression=off,pglz"]).hypothesis == read("settings").hypothesis != ""
    for wrong in ("work_mem", "work_mem=4MB", "=1,2", "work mem=1,2"):
        with pytest.raises(LeadlineError):
            with_setting(read("settings"), [wrong])


def test_levels_of_the_command_line_take_the_place_of_those_of_a_factor_and_keep_its_texts() -> None:
    study = with_levels(parse(SEED_001, "job"), ["kaio=off, 2", "updates=yes,maybe"])
    updates, kaio = study.factors
    assert (updates.kind, updates.levels) == ("command", (("yes", "--updates"), ("maybe", "maybe")))
    assert (kaio.kind, kaio.target, kaio.levels) == ("environment", "KAIOOFF", (("off", "1"), ("2", "2")))
    assert with_levels(read("fetch-size"), ["rows=all,1"]).factors[0].enough
    few = "needs two levels or more"
    for wrong, said in (("nothing=1,2", "no factor 'nothing'"), ("kaio", few), ("kaio=1", few), ("kaio=1,1", few)):
        with pytest.raises(LeadlineError, match=said):
            with_levels(study, [wrong])


TIMED = SEED_001.replace("job {updates}", "job {updates} --for {for}").replace("[load]", '[load]\nfor = "10s"')


def test_a_command_has_a_time_where_it_stands_in_it() -> None:
    study = parse(TIMED, "job")
    assert study.load == {"command": "job {updates} --for {for}", "for": "10s"}
    assert filled(study, study.baseline, study.load["command"], "") == ["job", "--updates", "--for", "10s"]
    for wrong in (TIMED.replace('for = "10s"', ""), TIMED.replace("{for}", "5s"), TIMED.replace("10s", "soon"),
                  TIMED.replace('for = "10s"', 'for = "10s"\nclients = 1')):  # fmt: skip
        with pytest.raises(LeadlineError):
            parse(wrong, "job")


def test_a_metric_that_is_not_compared_may_be_anything_and_costs_no_comparison() -> None:
    text = SEED_001 + '[[metric]]\nvalue = "seconds"\n[[metric]]\nname = "left"\npattern = "left=(.*)"\ncompared = false\n'
    study = parse(text, "job")
    assert [(metric.name, metric.compared) for metric in study.metrics] == [("seconds", True), ("left", False)]
    assert plan(study, None)["comparisons"] == 2 and of_text(study.as_text()) == study
    design = json.loads(study.as_text())
    figures: dict[tuple[int, int, str], float | None] = {}
    for at in range(30):
        figures |= {(at // 3, at % 3, "seconds"): 2.0, (at // 3, at % 3, "left"): -1.0}
    found = judge(read_design(json.dumps(design)), figures)
    assert {row["metric"] for row in found["effects"]} == {"seconds"} and found["no_effect"] == []
    assert (check_of(True)(-1.0)[0], check_of(False)(-1.0)[0], check_of(False)(0.0)[0]) == (None, -1.0, 0.0)
    assert check_of(False)(math.inf)[0] is None
    for wrong, said in (("compared = false", "compared = 0"), ('value = "seconds"', 'value = "seconds"\ncompared = false')):
        with pytest.raises(LeadlineError):
            parse(text.replace(wrong, said), "job")


def test_what_is_no_file_of_a_design(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"\xff\0")
    for odd in (tmp_path, tmp_path / "fifo", tmp_path / "none", tmp_path / "binary", Path("/dev/null")):
        with pytest.raises(LeadlineError):
            read(str(odd))


def test_the_next_command_has_the_options_and_no_password(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--setting", "work_mem=4MB,64MB", "--repetitions", "12"]
    assert run(["study", "plan", "settings", *words, "--server", "postgres://a:secret@h/x"]) == 0
    said = capsys.readouterr().err
    assert said == "next: leadline study run settings --setting work_mem=4MB,64MB --repetitions 12 --server DSN\n"


def design_of(text: str, **more: Any) -> dict[str, Any]:
    return read_design(parse(text, "x").as_text()) | more


def test_effects_are_found_over_the_levels_of_the_others_and_not_without_their_cells() -> None:
    """Planted: no updates takes half the time, KAIO off nothing, and both together a quarter more than that."""
    whole = design_of(SEED_001.replace("[[exclude]]", "[[omit]]").split("[[omit]]")[0] + '[load]\ncommand = "job {updates}"\n')
    rng, figures = random.Random(1), {}
    for block in range(10):
        drift = 1 + 0.5 * block
        for at, (updates, kaio) in enumerate(tuple(cell) for cell in whole["cells"]):
            value = 10 * drift * (0.5 if updates == "no" else 1) * (1.25 if (updates, kaio) == ("no", "off") else 1)
            figures[(block, at, "seconds")] = value * rng.uniform(0.995, 1.005)
    found = judge(whole, figures)
    effects = {row["level"]: row for row in found["effects"]}
    assert effects["updates=no"]["ratio"] == pytest.approx(0.5 * 1.25**0.5, rel=0.01) and effects["updates=no"]["verdict"] == "faster"
    cells = {row["level"]: row["ratio"] for row in found["cells"]}
    assert cells["updates=no, kaio=on"] == pytest.approx(0.5, rel=0.01) and cells["updates=yes, kaio=off"] == pytest.approx(1, rel=0.01)
    assert found["interactions"][0]["ratio"] == pytest.approx(1.25, rel=0.01) and found["empty"] == []
    assert "2 comparisons, corrected together (Holm)" in found["error"]
    lacking = design_of(SEED_001)
    part = {(block, at, "seconds"): 10.0 for block in range(10) for at in range(3)}
    found = judge(lacking, part)
    assert found["interactions"] == [] and [one["cell"] for one in found["empty"]] == ["updates=no, kaio=off"]
    assert found["empty"][0]["reason"] == "nobody measured it" and "their interaction" in found["empty"][0]["forbids"][0]
    one_fails = {key: value for key, value in part.items() if key[1] != 1}
    found = judge(lacking, one_fails)
    assert [row["level"] for row in found["effects"]] == ["updates=no"], "nothing is said of what was not measured"
    assert [one["reason"] for one in found["empty"]] == ["no trial of it has a figure", "nobody measured it"]


def test_a_block_without_a_trial_is_left_out_of_what_needs_it_alone() -> None:
    design = design_of(SEED_001)
    figures: dict[tuple[int, int, str], float | None] = {(block, at, "seconds"): 10.0 + at for block in range(10) for at in range(3)}
    figures[(4, 1, "seconds")] = None
    del figures[(5, 2, "seconds")]
    rows = {row["level"]: row["blocks"] for row in judge(design, figures)["effects"]}
    assert rows == {"updates=no": 9, "kaio=off": 9}


def test_interactions_are_named_once_for_each_two_levels() -> None:
    names = [name for name, _ in interactions(["a", "b", "c"], [["0", "1"], ["0", "1", "2"], ["0", "1"]])]
    assert names == ["a=1 with b=1", "a=1 with b=2", "a=1 with c=1", "b=1 with c=1", "b=2 with c=1"]
    assert len(all_cells([["0", "1"], ["0", "1", "2"], ["0", "1"]])) == 12


def test_what_is_excluded_leaves_something_to_compare() -> None:
    study = parse(SEED_001, "job")
    with pytest.raises(LeadlineError, match="nothing is left to compare"):
        exclude(exclude(study, {"kaio": "off"}, ""), {"updates": "no"}, "")


def test_a_level_that_changed_nothing_is_told_by_what_it_did_and_what_is_enough_by_the_order() -> None:
    """2147483648 of seed 000: taken, ignored, and seen by its trials alone."""
    text = """
question = "How small may a fetch be?"
[[factor]]
name = "rows"
command = true
enough = true
levels = ["all", "2147483648", "1", "100", "1000"]
[load]
command = "fetch {rows}"
[[metric]]
value = "seconds"
[[metric]]
name = "round trips"
pattern = "trips=([0-9]+)"
proves = "rows"
"""
    design, rng = design_of(text), random.Random(3)
    seconds, trips = {"all": 10, "2147483648": 10, "1": 90, "100": 12, "1000": 10.1}, {"1": 5000, "100": 52, "1000": 7}
    figures: dict[tuple[int, int, str], float | None] = {}
    for block in range(12):
        for at, (rows,) in enumerate(tuple(cell) for cell in design["cells"]):
            figures[(block, at, "seconds")] = seconds[rows] * rng.uniform(0.995, 1.005)
            figures[(block, at, "round trips")] = float(trips.get(rows, 2))
    found = judge(design, figures)
    assert found["no_effect"] == [{"level": "rows=2147483648", "metric": "round trips", "value": 2.0}]
    assert [(row["level"], row["verdict"]) for row in found["effects"]] == [
        ("rows=1", "slower"), ("rows=100", "slower"), ("rows=1000", "equivalent"),
    ]  # fmt: skip
    assert found["enough"] == ["rows=1000"]
    figures[(3, 1, "round trips")] = 3.0
    assert judge(design, figures)["no_effect"] == [], "it had an effect once"
    for wrong, said in (('proves = "rows"', 'proves = "row"'), ('value = "seconds"', 'value = "seconds"\nproves = "rows"')):
        with pytest.raises(LeadlineError):
            parse(text.replace(wrong, said), "x")
