"""The form of the rules, and the engine: what is evaluated, what is not and why, in which order."""

from __future__ import annotations

import json
import re
import shutil
from contextlib import closing
from importlib import resources
from pathlib import Path

import leadline.capture.hold
import leadline.capture.reader
import pytest
from findings_synthetic import SyntheticCapture
from leadline import findings
from leadline.capture.reader import open_capture
from leadline.engines import directories
from leadline.errors import LeadlineError
from leadline.findings import COLUMNS, CONFIDENCES, FACTS, SEVERITIES, Definition, all_findings, evaluate, parse_finding
from leadline.tables import all_tables
from leadline.tables.macros import macros
from leadline.views.show import lines as show_lines
from leadline.views.text import rest_lines

RULES = {d.id: d for d in all_findings()}
OF_THE_WHOLE_SERVER = {  # one row at most: nothing to order
    "LOCKMANAGER-CONTENTION",
    "BUFFERMAPPING",
    "WAL-CONTENTION",
    "CKPT-REQUESTED",
    "CPU-FREQUENCY",
    "CPU-STEAL",
    "INTERRUPT-LOAD",
    "PIN-CLEANUP",
    "REPLAY-CONFLICT",
    "SYNCREP-BOUND",
    "READ-IO",
    "BUFFER-WAITS-UNNAMED",
}
HEADER = "-- id: T-RULE\n-- title: t\n-- question: q\n-- domain: postgres\n"
HEADER += "-- needs: tick\n-- unit: u\n-- cost: database time\n-- wrong when: w\n"
ONE_ROW = (
    "select 'T-RULE' as id, 'low' as severity, 'high' as confidence, 's' as subject, 't' as statement, null::double as cost_s, "
    "null::double as share_of_db_time, 1::bigint as samples, 2::bigint as ts_from, 3::bigint as ts_to, to_json([{a: 1}]) as evidence"
)
NOTES = "# t\n" + "".join(f"\n## {heading}\ntext of {heading}\n" for heading in findings.SECTIONS)


def rule(query: str = ONE_ROW, more: str = "") -> Definition:
    return parse_finding("0099_t_rule.sql", HEADER + more + query, NOTES)


ANSWER = findings._answer  # without what conftest.py adds


@pytest.fixture
def cap(tmp_path: Path) -> SyntheticCapture:
    made = SyntheticCapture(tmp_path, seconds=10)
    made.background()
    return made


# -- the files ------------------------------------------------------------------------------------------------------------


def test_every_sql_has_its_md_and_the_name_of_its_id() -> None:
    folder = Path(str(resources.files("leadline.findings")))
    places = [*folder.iterdir(), *directories("findings")]
    names = {path.name for place in places if place.is_dir() for path in place.iterdir() if path.suffix in (".sql", ".md")}
    rules = {n.removesuffix(".sql") for n in names if n.endswith(".sql")}
    assert {n.removesuffix(".md") for n in names if n.endswith(".md")} == rules
    assert {d.file for d in RULES.values()} == {f"{r}.sql" for r in rules}
    assert len(RULES) == len(rules), "two rules share an id"
    assert len({r[:4] for r in rules}) == len(rules), "two rules share a number"
    for definition in RULES.values():
        assert re.fullmatch(r"\d{4}_[a-z0-9_]+\.sql", definition.file)
        assert definition.id == definition.file[5:-4].upper().replace("_", "-")


@pytest.mark.parametrize("name", RULES)
def test_a_rule_keeps_the_form(name: str) -> None:
    definition = RULES[name]
    assert set(definition.needs) | {table for table, _ in definition.minimums} <= set(all_tables())
    used = set(re.findall(r"getvariable\('(\w+)'\)", definition.query))
    assert used == {t.name for t in definition.thresholds}, "thresholds of the header and of the query differ"
    result = definition.query[definition.query.rindex(f"select '{name}'") :]
    ordered = re.search(r"\border by\b(?![^()]*\))[^()]*$", result)
    if name not in OF_THE_WHOLE_SERVER:
        assert ordered, "the result has no order"
    assert definition.title == definition.title.strip(".") and definition.question.endswith("?")
    assert definition.query.isascii() and all(text.isascii() for text in definition.sections.values())


def test_all_rules_have_the_same_columns(cap: SyntheticCapture) -> None:
    with cap.open(hold=False) as capture:
        for definition in RULES.values():
            for threshold in definition.thresholds:
                capture.db.execute(f"set variable {threshold.name} = {threshold.value}::double")
        union = "\nunion all by name\n".join(f"select * from ({d.query})" for d in RULES.values())
        query = f"select * from ({union}) limit 0"
        capture.prepare(query)
        columns = {name: str(kind) for name, kind, *_ in capture.db.execute(query).description}
    assert columns == COLUMNS | dict([FACTS])


def test_the_header_lines_of_all_rules_are_one_query(cap: SyntheticCapture) -> None:
    """One that does not run beside the others would cost a query for each."""
    asked = [question for rule in RULES.values() for question in findings._questions(rule, {t.name: t.value for t in rule.thresholds})]
    query = f"select {', '.join(dict.fromkeys(asked))}"
    with cap.open(hold=False) as capture:
        capture.prepare(query)
        assert len(capture.db.execute(query).fetchone() or ()) == len(set(asked)) > len(RULES) / 2


def test_a_header_line_that_does_not_run_is_that_of_its_rule_alone(cap: SyntheticCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = rule(ONE_ROW, "-- silent unless: exists (from tick group by tick)\n")
    quiet = [
        Definition(**{**vars(rule("select 1", f"-- silent unless: exists (from tick where tick < -{n})\n")), "id": f"QUIET-{n}"})
        for n in range(5)
    ]  # their queries would fail
    monkeypatch.setattr(findings, "all_findings", lambda: (*quiet[:2], broken, *quiet[2:]))
    monkeypatch.setattr(findings, "_answer", ANSWER)
    with cap.open(hold=False) as capture:
        result = evaluate(capture)
    assert [name for name, _ in result.not_evaluated] == ["T-RULE"]
    assert sorted(result.clean) == [one.id for one in quiet]


@pytest.mark.parametrize(
    ("sql", "notes", "message"),
    [
        (HEADER.replace("-- unit: u\n", "") + ONE_ROW, NOTES, "'unit'"),
        (HEADER.replace("domain: postgres", "domain: oracle") + ONE_ROW, NOTES, "domain is one of"),
        (HEADER.replace("cost: database time", "cost: money") + ONE_ROW, NOTES, "cost is one of"),
        (HEADER + "-- surprise: 1\n" + ONE_ROW, NOTES, "not a header line"),
        (HEADER + "-- threshold: x = 3\n" + ONE_ROW, NOTES, "where from"),
        (HEADER + "-- minimum: tick\n" + ONE_ROW, NOTES, "table rows"),
        (HEADER + "-- evaluable when: true\n" + ONE_ROW, NOTES, "condition | reason"),
        (HEADER + ONE_ROW, NOTES.replace("## Wrong when", "## Wrong"), "sections"),
        (HEADER + ONE_ROW, NOTES.replace("text of References", ""), "empty"),
    ],
)
def test_a_file_that_breaks_the_form_is_refused(sql: str, notes: str, message: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(message)):
        parse_finding("0099_t_rule.sql", sql, notes)


# A count of one or two of something, a share of all of it, and half of the 32 bits of a transaction id: no thresholds.
PLAIN_NUMBERS = {"0", "1", "2", "2147483648"}


def test_no_threshold_hides_in_a_query() -> None:
    texts = {d.file: d.query for d in RULES.values()} | {v.name: v.sql for v in all_tables().values()} | {"macros.sql": macros().sql}
    for file, text in texts.items():
        compared = set(re.findall(r"(?<![<>])[<>]=?\s*(\d[\d.]*)", re.sub(r"--.*|'[^']*'", "", text)))
        assert compared <= PLAIN_NUMBERS, f"{file} compares with {sorted(compared - PLAIN_NUMBERS)}: name it in a threshold line"


def test_a_shared_threshold_has_one_place() -> None:
    shared = [t.name for t in findings.shared_thresholds()]
    assert len(shared) == len(set(shared)) and "ascending_steps" in shared and "critical_share" in shared
    assert not set(shared) & {t.name for d in RULES.values() for t in d.thresholds}
    for text in (macros().sql, *(view.sql for view in all_tables().values())):
        for name in re.findall(r"getvariable\('(\w+)'\)", text):
            assert name in shared and f"coalesce(getvariable('{name}'), " in text


# -- evaluation -------------------------------------------------------------------------------------------------------------


def test_a_quiet_server_and_an_ordinary_load_have_no_finding(tmp_path: Path, cap: SyntheticCapture) -> None:
    loaded = SyntheticCapture(tmp_path / "loaded")
    loaded.background()
    loaded.ordinary_load()
    for made in (cap, loaded):
        with made.open(hold=False) as capture:
            result = evaluate(capture)
        assert result.findings == []
        assert not [reason for _, reason in result.not_evaluated if "query" in reason]


def test_each_rule_ends_in_exactly_one_list(cap: SyntheticCapture) -> None:
    cap.setting("fsync", "off")
    with cap.open(hold=False) as capture:
        result = evaluate(capture)
    found, silent = {f.id for f in result.findings}, {name for name, _ in result.not_evaluated}
    foreign = {name for name, _ in result.not_applicable}
    assert found == {"DURABILITY-OFF"}
    assert foreign == {name for name, rule in RULES.items() if rule.domain in ("sockets", "kernel", "wire", "pooler", "replication")}
    assert found | silent | foreign | set(result.clean) == set(RULES)
    assert len(found) + len(silent) + len(foreign) + len(result.clean) == len(RULES)


def test_the_query_of_a_finding_gives_its_rows_when_pasted(cap: SyntheticCapture) -> None:
    client = cap.add_session(application_name="slow")
    cap.sample(client, "active", "Client:ClientWrite", 0, 10)
    with cap.open(hold=False) as capture:
        (found,) = evaluate(capture, only=["SLOW-CLIENT"], thresholds={"slow_client_s": 2.5}).findings
        assert "set variable slow_client_s = 2.5" in found.sql
        (row,) = capture.rows(found.sql)
    assert (row["subject"], round(row["cost_s"], 9)) == (found.subject, found.cost_s)
    assert found.file == "0009_slow_client.sql"
    assert found.action == RULES["SLOW-CLIENT"].sections["What to do"]
    assert found.verify == RULES["SLOW-CLIENT"].sections["How to verify"]
    assert json.loads(json.dumps(found.as_dict()))["evidence"] == found.evidence
    assert list(found.as_dict())[: len(COLUMNS)] == list(COLUMNS)


def test_the_capture_is_left_as_it_was(cap: SyntheticCapture) -> None:
    with cap.open(hold=False) as capture:
        evaluate(capture)
        assert capture.scalar("select count(*) from duckdb_tables()") == 0
        assert capture.scalar("select count(*) from duckdb_variables()") == 0
        assert len(evaluate(capture).clean) == len(evaluate(capture).clean)


@pytest.fixture
def busy(cap: SyntheticCapture) -> SyntheticCapture:
    """A client that waits for 10 s of 60, and a transaction left open before which another session waits."""
    client, holder = cap.add_session(application_name="slow"), cap.add_session()
    cap.sample(client, "active", "Client:ClientWrite", 0, 10)
    cap.sample(holder, "idle in transaction", "Client:ClientRead", 0, 10)
    cap.lock_wait(cap.add_session(), holder, 2, 8)
    return cap


def test_tables_too_large_for_memory_stay_in_their_files(busy: SyntheticCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    with busy.open(hold=False) as capture:
        from_memory = evaluate(capture)
        monkeypatch.setattr(leadline.capture.hold, "TABLE_LIMIT", 0)
        assert evaluate(capture) == from_memory
    assert {"SLOW-CLIENT", "IDLE-IN-XACT"} <= {f.id for f in from_memory.findings}


def test_what_a_capture_has_no_evidence_of_is_created_when_a_query_names_it(busy: SyntheticCapture) -> None:
    with busy.open(hold=False) as whole, closing(open_capture(busy.path, hold=True)) as held:
        evaluate(held)
        created = held.rows("select table_name as name from duckdb_tables() union select view_name from duckdb_views()")
        there = {row["name"] for row in created}
        assert {"lock_wait", "lock_chain"} <= there and not {"call_sum", "informix_extent", "wal_block"} & there
        for name in all_tables():
            query = f'select column_name, column_type from (describe from "{name}")'
            assert held.rows(query) == whole.rows(query), name
            assert held.scalar(f'select count(*) from "{name}"') == whole.scalar(f'select count(*) from "{name}"'), name


@pytest.mark.parametrize("small", [True, False])
def test_no_rule_compares_each_row_with_each(busy: SyntheticCapture, monkeypatch: pytest.MonkeyPatch, small: bool) -> None:
    """Rules run in cursors, which have settings of their own: DuckDB would join few rows that way, and often takes many for few."""
    monkeypatch.setattr(leadline.capture.reader, "is_small", lambda *_: small)
    joins = {"ASOF_JOIN": "from range(3) a(x) asof join range(3) b(y) on x >= y"}
    if not small:
        joins["IE_JOIN"] = "from range(9) a(x) join (select y, y + 2 as z from range(9) b(y)) on x >= y and x < z"
    with busy.open(hold=False), closing(open_capture(busy.path, hold=True)) as held, closing(held.db.cursor()) as cursor:
        for join, query in joins.items():
            assert join in str(cursor.execute(f"explain {query}").fetchall())


def test_what_no_query_names_is_not_created(busy: SyntheticCapture) -> None:
    catalog = "select count(*) as n from duckdb_views() where not internal"
    with busy.open(hold=False) as capture:
        capture.rows("select count(*) from lock_chain")
        few = capture.scalar(catalog)
    with closing(open_capture(busy.path, whole=True)) as whole:
        raw = sum(table.rows_name != table.name for table in all_tables().values())  # what is stored, beneath what is computed from it
        assert whole.scalar(catalog) == len(all_tables()) + raw + 1 > 3 * few  # and the manifest


def test_what_a_command_needs_next_is_done_while_a_capture_opens(busy: SyntheticCapture) -> None:
    done: list[str] = []
    with busy.open(hold=False), closing(open_capture(busy.path, hold=True, meanwhile=lambda: done.append("imports"))):
        assert done == ["imports"]


def test_of_very_many_samples_some_passes_stand_for_the_rest(busy: SyntheticCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    with busy.open(hold=False) as capture:
        of_all = evaluate(capture)
        samples = capture.scalar("select count(*) from session_tick")
        monkeypatch.setattr(leadline.capture.hold, "SAMPLES_LIMIT", samples - 1)
        monkeypatch.setattr(leadline.capture.hold, "THINNED_SAMPLES", samples // 7)
        thinned = evaluate(capture)
    assert (of_all.every_pass, thinned.every_pass) == (1, 8)
    assert [(f.id, f.subject, f.severity) for f in thinned.findings] == [(f.id, f.subject, f.severity) for f in of_all.findings]
    for few, all_of_them in zip(thinned.findings, of_all.findings):
        assert few.samples <= all_of_them.samples
        if all_of_them.cost_s is not None:
            assert few.cost_s == pytest.approx(all_of_them.cost_s, abs=8 * 0.01 * 2)  # a stretch is off by a pass at each end
    with closing(open_capture(busy.path, hold=True)) as held:
        passes = held.rows("select count(*) as passes, sum(period_ns) as ns from sampled_pass")[0]
        ticks = held.rows("select count(*) as passes, sum(period_ns) as ns from tick")[0]
        looks = held.scalar("select count(*) from (select distinct ts from lock_wait) where ts not in (select ts from sampled_pass)")
    assert passes["ns"] == ticks["ns"] and looks == 0
    assert ticks["passes"] // 8 <= passes["passes"] < ticks["passes"] // 4


def test_fewer_samples_may_be_asked_for(busy: SyntheticCapture) -> None:
    seconds = "select sum(weight_s) from session_sample"
    with busy.open() as capture:
        samples, whole_s = capture.scalar("select count(*) from session_tick"), capture.scalar(seconds)
    with closing(open_capture(busy.path, hold=True, most_samples=samples)) as all_of_them:
        assert all_of_them.every_pass == 1
    with closing(open_capture(busy.path, hold=True, most_samples=samples // 4 - 1)) as held:
        assert held.every_pass == evaluate(held).every_pass == 5
        assert held.scalar(seconds) == pytest.approx(whole_s, rel=0.01)


def test_a_view_says_that_most_passes_were_not_read(busy: SyntheticCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    with busy.open(hold=False) as capture:
        samples = capture.scalar("select count(*) from session_tick")
    monkeypatch.setattr(leadline.capture.hold, "SAMPLES_LIMIT", 10)
    monkeypatch.setattr(leadline.capture.hold, "THINNED_SAMPLES", samples // 2)
    with closing(open_capture(busy.path, hold=True)) as held:
        evaluation = evaluate(held)
        text = "\n".join(line.plain for line in show_lines(held, evaluation))
        assert "one pass in 2 was read" in " ".join(text.split())
    rest = " ".join(line.plain for line in rest_lines(evaluation, reasons=False))
    assert "one pass in 2 was read" in " ".join(rest.split())


def test_findings_are_ranked_by_cost_then_severity(cap: SyntheticCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    def row(severity: str, cost: str, subject: str) -> str:
        return (
            ONE_ROW.replace("'low'", f"'{severity}'")
            .replace("null::double as cost_s", f"{cost}::double as cost_s")
            .replace("'s'", f"'{subject}'")
        )

    rows = [
        ("info", "null", "e"),
        ("low", "5", "b"),
        ("critical", "null", "d"),
        ("medium", "50", "a"),
        ("low", "0.5", "c"),
        ("info", "null", "f"),
    ]
    query = " union all ".join(row(*r) for r in rows)
    monkeypatch.setattr(findings, "all_findings", lambda: (rule(query),))
    with cap.open(hold=False) as capture:
        assert "".join(f.subject for f in evaluate(capture).findings) == "abcdef"


def test_seconds_of_the_host_stand_behind_what_the_server_lost(cap: SyntheticCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(severity: str, cost: str, subject: str, domain: str) -> Definition:
        query = ONE_ROW.replace("'low'", f"'{severity}'").replace("null::double as cost_s", f"{cost}::double as cost_s")
        return Definition(**{**vars(rule(query.replace("'s'", f"'{subject}'"))), "domain": domain, "id": subject})

    rules = (
        found("critical", "900", "d", "host"),
        found("medium", "20", "b", "postgres"),
        found("critical", "30", "a", "postgres"),
        found("critical", "null", "c", "postgres"),
        found("low", "null", "f", "postgres"),
        found("critical", "null", "e", "host"),
    )
    monkeypatch.setattr(findings, "all_findings", lambda: rules)
    with cap.open(hold=False) as capture:
        assert "".join(f.subject for f in evaluate(capture).findings) == "abcdef"


def test_thresholds_are_set_by_name_for_all_rules_or_for_one(cap: SyntheticCapture, monkeypatch: pytest.MonkeyPatch) -> None:
    query = ONE_ROW.replace("'s'", "getvariable('least')::varchar")
    one, two = rule(query, "-- threshold: least = 3 (a test)\n"), rule(query, "-- threshold: least = 4 (a test)\n")
    two = Definition(**{**vars(two), "id": "OTHER"})
    monkeypatch.setattr(findings, "all_findings", lambda: (one, two))
    with cap.open(hold=False) as capture:

        def subjects(**given: float) -> list[str]:
            names = {name.replace("__", "."): value for name, value in given.items()}
            return [f.subject for f in evaluate(capture, thresholds=names).findings]

        assert subjects() == ["3.0", "4.0"]
        assert subjects(least=0.25) == ["0.25", "0.25"]
        assert sorted(subjects(OTHER__least=7)) == ["3.0", "7.0"]
        with pytest.raises(LeadlineError) as e:
            evaluate(capture, thresholds={"most": 1})
    assert (e.value.kind, e.value.message) == ("usage", "no threshold named most")
    assert "OTHER.least" in e.value.hint


def test_an_unknown_rule_is_a_usage_error(cap: SyntheticCapture) -> None:
    with cap.open(hold=False) as capture, pytest.raises(LeadlineError) as e:
        evaluate(capture, only=["NO-SUCH"])
    assert e.value.kind == "usage"
    assert "BLOCK-CHAIN" in e.value.hint


def test_only_evaluates_the_rules_asked_for(cap: SyntheticCapture) -> None:
    with cap.open(hold=False) as capture:
        result = evaluate(capture, only=["TOP-WAIT", "XMIN-HORIZON"])
    assert result.clean == ["TOP-WAIT", "XMIN-HORIZON"]


# -- not evaluated ------------------------------------------------------------------------------------------------------------


def test_a_probe_that_was_off_is_the_reason(cap: SyntheticCapture) -> None:
    cap.probe("locks", "off", why="shared memory may not be read")
    with cap.open(hold=False) as capture:
        result = evaluate(capture, only=["IDLE-IN-XACT"])
    assert result.not_evaluated == [("IDLE-IN-XACT", "lock_wait: shared memory may not be read")]


def test_too_few_samples_give_no_verdict(tmp_path: Path) -> None:
    short = SyntheticCapture(tmp_path, seconds=0.2)
    short.sample(short.add_session(), "active", "IO:WALSync", 0, 0.2)
    with short.open(hold=False) as capture:
        result = evaluate(capture, only=["TOP-WAIT"])
    assert result.not_evaluated == [("TOP-WAIT", "too few samples: 20 rows of tick, at least 30 are needed")]


def test_a_condition_that_does_not_hold_gives_its_reason(cap: SyntheticCapture) -> None:
    with cap.open(hold=False) as capture:
        result = evaluate(capture, only=["ZONE-RECLAIM"])
    assert result.not_evaluated == [("ZONE-RECLAIM", "this kernel has no vm.zone_reclaim_mode (built without NUMA)")]


@pytest.mark.parametrize(
    ("query", "more", "reason"),
    [
        ("select no_such_column from tick", "", "the query failed"),
        ("select 1 as id", "", "the columns are not those of a finding"),
        (ONE_ROW.replace("1::bigint as samples", "1.5 as samples"), "", "samples DECIMAL(2,1)"),
        (ONE_ROW, "-- evaluable when: no_such_column = 1 | never\n", "the query failed"),
        (ONE_ROW, "-- silent unless: exists (from tick group by tick)\n", "the query failed"),
    ],
)
def test_a_broken_rule_is_reported_and_the_others_go_on(
    cap: SyntheticCapture, monkeypatch: pytest.MonkeyPatch, query: str, more: str, reason: str
) -> None:
    sound = Definition(**{**vars(rule()), "id": "SOUND"})
    monkeypatch.setattr(findings, "all_findings", lambda: (rule(query, more), sound))
    with cap.open(hold=False) as capture:
        result = evaluate(capture)
    ((name, why),) = result.not_evaluated
    assert name == "T-RULE" and reason in why
    assert len(result.findings) == 1


def test_an_empty_capture_has_no_finding_and_no_error(tmp_path: Path) -> None:
    empty = SyntheticCapture(tmp_path, seconds=0)
    for name in list(empty.probes):
        empty.probe(name, "off", why="nothing ran")
    with empty.open(hold=False) as capture:
        result = evaluate(capture)
    assert result.findings == [] and result.clean == []
    assert {why.split(": ")[-1] for _, why in result.not_evaluated} == {"nothing ran"}


def test_a_rule_about_something_else_is_not_applicable(cap: SyntheticCapture) -> None:
    path = cap.write()
    for folder in [f for f in path.iterdir() if f.is_dir()]:
        shutil.rmtree(folder)
    manifest = path / "manifest.json"
    content = json.loads(manifest.read_text())
    content["target"]["kind"] = "wal"
    content["probes"] = {"wal": {"status": "ok"}, "host": {"status": "off", "why": "only the log was read"}}
    manifest.write_text(json.dumps(content))
    with cap.open(hold=False) as capture:
        result = evaluate(capture)
    assert result.findings == [] and result.clean == [] and result.not_evaluated == []
    assert {name for name, _ in result.not_applicable} == set(RULES)
    assert dict(result.not_applicable)["SWAP"] == "about host: the capture has no probe host"


def test_a_probe_that_was_refused_is_missing_evidence_of_what_the_capture_is_about(cap: SyntheticCapture) -> None:
    cap.probe("host", "off", why="/proc may not be read")
    with cap.open(hold=False) as capture:
        result = evaluate(capture, only=["SWAP"])
    assert result.not_applicable == [] and result.not_evaluated == [("SWAP", "host_stat: /proc may not be read")]


def test_a_shared_threshold_may_be_set_and_is_in_the_query(cap: SyntheticCapture) -> None:
    client = cap.add_session(application_name="slow")
    cap.sample(client, "active", "Client:ClientWrite", 0, 10)
    with cap.open(hold=False) as capture:
        (plain,) = evaluate(capture, only=["SLOW-CLIENT"]).findings
        (strict,) = evaluate(capture, only=["SLOW-CLIENT"], thresholds={"critical_sessions": 5, "high_sessions": 4}).findings
        assert (plain.severity, strict.severity) == ("high", "medium")
        assert capture.rows(plain.sql)[0]["severity"] == "high"
        assert capture.rows(strict.sql)[0]["severity"] == "medium"


@pytest.mark.parametrize(
    ("cost", "query", "why"),
    [
        ("none", ONE_ROW.replace("null::double as cost_s", "1.0::double as cost_s"), "no base for it"),
        ("wall time", ONE_ROW.replace("null::double as share", "0.5::double as share"), "a cost in wall time"),
    ],
)
def test_a_cost_is_of_its_base(cap: SyntheticCapture, monkeypatch: pytest.MonkeyPatch, cost: str, query: str, why: str) -> None:
    made = parse_finding("0099_t_rule.sql", HEADER.replace("cost: database time", f"cost: {cost}") + query, NOTES)
    monkeypatch.setattr(findings, "all_findings", lambda: (made,))
    with cap.open(hold=False) as capture:
        ((_, reason),) = evaluate(capture).not_evaluated
    assert why in reason


def test_an_interrupted_capture_is_evaluated_with_what_it_has(cap: SyntheticCapture) -> None:
    client = cap.add_session(application_name="slow")
    cap.sample(client, "active", "Client:ClientWrite", 0, 10)
    manifest = cap.write() / "manifest.json"
    content = json.loads(manifest.read_text())
    content["status"], content["clock"]["ts_to"] = "recording", None
    manifest.write_text(json.dumps(content))
    with cap.open(hold=False) as capture:
        assert [f.id for f in evaluate(capture, only=["SLOW-CLIENT"]).findings] == ["SLOW-CLIENT"]


def test_severity_and_confidence_are_of_the_known_words() -> None:
    for definition in RULES.values():
        result = definition.query[definition.query.rindex(f"select '{definition.id}'") :]
        severity, rest = result.split(" as severity,", 1)
        confidence = rest.split(" as confidence,", 1)[0]
        for text, known, macro in ((severity.split(" as id,")[1], SEVERITIES, "severity_of("), (confidence, CONFIDENCES, "confidence_of")):
            given = words(text)
            assert given <= set(known), f"{definition.file}: {sorted(given)}"
            if macro not in text:
                assert given, f"{definition.file}: no word of {known}"
    made = {text.partition("(")[0]: text for text in macros().sql.split("macro ")[1:]}
    assert words(made["severity_of"]) == set(SEVERITIES) - {"info"}
    assert [words(made[name]) for name in ("confidence_of", "confidence_of_seen")] == [set(CONFIDENCES)] * 2


def words(text: str) -> set[str]:
    """The words that a SQL expression may give."""
    return set(re.findall(r"(?:then|else)\s+'(\w+)'", text)) | set(re.findall(r"^\s*'(\w+)'\s*$", text))
