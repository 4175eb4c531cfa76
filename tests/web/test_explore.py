"""leadline explore: its numbers are those of SQL, what it does not understand is refused, and it answers its own user alone.

The SQL that it shows gives the very same numbers over the same rows. A capture that is opened in two ways has its rows in two orders, in
which sums of the same floats differ in their last digits: twelve are compared.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import duckdb
import pytest
from example_capture import LONG, NASTY, example
from findings_synthetic import TS_FROM, SyntheticCapture
from host_synthetic import HostCapture
from leadline.capture.reader import Capture, open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.explore import queries
from leadline.explore.address import read_state
from leadline.explore.answers import Explorer, open_explored
from leadline.explore.app import on_loopback
from leadline.views.lock_tree import lock_trees
from leadline.views.spenders import objects
from packets_made import a_login
from trace_synthetic import trace_of_semget

PATIENCE_S = 60
WINDOWS = ("", "from=12&to=40", "from=3.25&to=3.75", "from=59.5")
FILTERS = (
    "",
    "class=Lock",
    "event=LWLock%3ABufferContent",
    "statement=12&class=Lock",
    f"application={quote(NASTY)}&event=CPU",
    "statement=",
)
COLUMNS = {"class": "wait_class", "statement": "statement_id", "user": '"user"', "session": "session_id"}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return example(tmp_path_factory.mktemp("explore")).write()


@pytest.fixture(scope="module")
def explorer(path: Path) -> Iterator[Explorer]:
    explorer = open_explored(path)
    yield explorer
    explorer.capture.close()


@pytest.fixture(scope="module")
def other(path: Path) -> Iterator[Capture]:
    """The same capture as `leadline sql` opens it, with the view computed once."""
    with closing(open_capture(path, whole=True)) as capture:
        capture.db.execute("create temp table db_time as from memory.main.db_time")
        yield capture


def where(explorer: Explorer, query: str) -> str:
    """The window and the filters of an address, written by hand."""
    asked = read_state(query, explorer.ts_from, explorer.ts_to).asked
    parts = [f"ts >= {asked.ts_from} and ts < {asked.ts_to}"]
    for name, value in asked.filters:
        if name == "event":
            parts.append("wait_event is null" if value == "CPU" else f"wait_class || ':' || wait_event = '{value}'")
        elif value == "":
            parts.append(f"{COLUMNS.get(name, name)} is null")
        else:
            parts.append(f"{COLUMNS.get(name, name)}::varchar = '" + str(value).replace("'", "''") + "'")
    return " and ".join(parts)


def joined(*parts: str) -> str:
    return "&".join(filter(None, parts))


def by_key(rows: list[dict[str, Any]]) -> dict[str, float]:
    return {row["key"]: row["seconds"] for row in rows}


# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("filters", FILTERS)
def test_the_chart_has_the_database_time_of_the_view(explorer: Explorer, other: Capture, window: str, filters: str) -> None:
    query = joined(window, filters)
    answer = explorer.over_time(read_state(query, explorer.ts_from, explorer.ts_to).asked)
    spent: dict[str, float] = {}
    for row in answer["rows"]:
        spent[row["wait_class"]] = spent.get(row["wait_class"], 0.0) + row["seconds"]
    expected = other.rows(f"select wait_class as key, sum(weight_s) as seconds from db_time where {where(explorer, query)} group by 1")
    assert spent == pytest.approx(by_key(expected), rel=1e-12)
    assert answer["rows"] == explorer.capture.rows(answer["sql"][0])
    assert answer["passes"] == explorer.capture.rows(answer["sql"][1]) == other.rows(answer["sql"][1])
    assert answer["last"] < queries.MOST_STEPS and all(0 <= row["step"] <= answer["last"] for row in answer["rows"])


def test_each_step_has_its_own_part_of_the_window(explorer: Explorer, other: Capture) -> None:
    answer = explorer.over_time(read_state("from=10&to=20&class=CPU", explorer.ts_from, explorer.ts_to).asked)
    for row in answer["rows"]:
        low = TS_FROM + int(1e9 * (10 + row["step"] * answer["step_s"]))
        high = low + int(1e9 * answer["step_s"])
        one = other.rows(
            f"select sum(weight_s) as s, sum(cpu_queue_s) as q from db_time where wait_class = 'CPU' and ts >= {low} and ts < {high}"
        )
        assert (row["seconds"], row["queue_s"]) == pytest.approx((one[0]["s"], one[0]["q"] or 0), rel=1e-9)
    assert len(answer["rows"]) == answer["last"] + 1 == 100


@pytest.mark.parametrize("by", queries.DIMENSIONS)
@pytest.mark.parametrize("query", ["", "from=12&to=40&class=Lock", f"application={quote(NASTY)}"])
def test_a_ranking_has_the_database_time_of_the_view(explorer: Explorer, other: Capture, by: str, query: str) -> None:
    answer = explorer.ranking(read_state(query, explorer.ts_from, explorer.ts_to).asked, by)
    column = "case when wait_event is null then 'CPU' else wait_class || ':' || wait_event end" if by == "event" else COLUMNS.get(by, by)
    expected = other.rows(
        f"select coalesce({column}::varchar, '') as key, sum(weight_s) as seconds from db_time where {where(explorer, query)} group by 1"
    )
    assert by_key(answer["rows"]) == pytest.approx(by_key(expected), rel=1e-12)
    assert [row["seconds"] for row in answer["rows"]] == sorted((row["seconds"] for row in answer["rows"]), reverse=True)
    assert answer["total_s"] == pytest.approx(sum(row["seconds"] for row in expected), rel=1e-12)
    assert answer["there"] == len(expected) > 0
    for row in answer["rows"]:
        assert sum(part["seconds"] for part in row["classes"]) == pytest.approx(row["seconds"], rel=1e-12)
    shown = explorer.capture.rows(answer["sql"][0])
    assert [(row["key"], row["seconds"]) for row in answer["rows"]] == [(row["key"], row["seconds"]) for row in shown]


def test_the_rest_of_a_long_ranking_is_counted(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=1)
    for number in range(60):
        cap.sample(cap.add_session(application_name=f"app {number}"), "active", None, 0, 1)
    explorer = open_explored(cap.write())
    answer = explorer.ranking(read_state("", explorer.ts_from, explorer.ts_to).asked, "application")
    assert (len(answer["rows"]), answer["there"], answer["total_s"]) == (50, 60, pytest.approx(60))
    explorer.capture.close()


def test_objects_are_those_that_waits_name(explorer: Explorer, other: Capture) -> None:
    whole = read_state("", explorer.ts_from, explorer.ts_to).asked
    shown = {row["key"]: row for row in explorer.ranking(whole, "object")["rows"]}
    expected = {o.object: o for o in objects(other)}
    assert shown.keys() == expected.keys()
    for name, row in shown.items():
        locks = sum(part["seconds"] for part in row["classes"] if part["wait_class"] == "Lock")
        assert locks == pytest.approx(expected[name].lock_s, rel=1e-9)
        assert row["seconds"] == pytest.approx(expected[name].seconds, rel=1e-9)
    behind = explorer.ranking(read_state("application=web&from=20&to=30", explorer.ts_from, explorer.ts_to).asked, "object")["rows"]
    assert sum(row["seconds"] for row in behind) == pytest.approx(20, rel=0.02)  # two of the three waiters are web


@pytest.mark.parametrize("what", ["time", "ranking", "locks"])
def test_the_sql_shown_runs_in_leadline_sql(explorer: Explorer, path: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    state = read_state(f"from=12&to=40&application={quote(NASTY)}&by=statement", explorer.ts_from, explorer.ts_to)
    answers = {
        "time": explorer.over_time(state.asked),
        "ranking": explorer.ranking(state.asked, state.by),
        "locks": explorer.locks(state.asked),
    }
    for text in answers[what]["sql"]:
        assert run(["sql", str(path), text, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)) > 0


def test_values_are_bound_and_never_part_of_the_query(explorer: Explorer) -> None:
    planted = "x' or 'a' = 'a"
    state = read_state(urlencode({"application": planted, "database": planted}), explorer.ts_from, explorer.ts_to)
    for query in (queries.over_time(state.asked, 10**9), queries.ranking(state.asked, "user"), queries.ranking(state.asked, "object")):
        assert planted not in query.sql and planted in query.values
        assert "'x'' or ''a'' = ''a'" in query.shown
    assert explorer.over_time(state.asked)["rows"] == []
    assert explorer.ranking(state.asked, "user")["rows"] == []


def test_lock_trees_are_those_of_the_window(explorer: Explorer, other: Capture) -> None:
    def trees(query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = explorer.locks(read_state(query, explorer.ts_from, explorer.ts_to).asked)["trees"]
        return found

    [whole], [expected] = trees(""), lock_trees(other)
    assert (whole["pid"], whole["seconds"], whole["victims"]) == (7001, pytest.approx(expected.seconds), 3)
    assert [waiter["pid"] for waiter in whole["waiters"]] == [7002]
    [part] = trees("from=20&to=30")
    assert part["seconds"] == pytest.approx(30, rel=0.02)
    assert trees("from=0&to=10") == []
    assert trees("") == [whole]  # the views in front were those of one question


def test_findings_have_their_times(explorer: Explorer) -> None:
    found = {finding["id"]: finding for finding in explorer.findings()["findings"]}
    assert (found["BLOCK-CHAIN"]["from_s"], found["BLOCK-CHAIN"]["to_s"]) == pytest.approx((12, 40), abs=0.1)


def test_findings_of_a_window_are_those_of_its_rows_alone(explorer: Explorer) -> None:
    def chain(query: str) -> list[dict[str, Any]]:
        answer = explorer.findings_of(read_state(query, explorer.ts_from, explorer.ts_to).asked)
        assert answer["clean"] > 0
        return [finding for finding in answer["findings"] if finding["id"] == "BLOCK-CHAIN"]

    [whole] = [finding for finding in explorer.findings()["findings"] if finding["id"] == "BLOCK-CHAIN"]
    [part] = chain("from=20&to=30")
    assert whole["cost_s"] == pytest.approx(78, rel=0.02) and part["cost_s"] == pytest.approx(30, rel=0.02)
    assert (part["from_s"], part["to_s"]) == (pytest.approx(20, abs=0.1), pytest.approx(30, abs=0.1))
    assert chain("from=45&to=55") == []


def test_what_was_not_seen_is_a_gap(tmp_path: Path) -> None:
    class Interrupted(SyntheticCapture):
        def _insert_ticks(self, db: duckdb.DuckDBPyConnection) -> None:
            super()._insert_ticks(db)
            db.execute(f"delete from tick where ts >= {self.ts(4)} and ts < {self.ts(6)}")

    cap = Interrupted(tmp_path, seconds=10)
    cap.sample(cap.add_session(), "active", None, 0, 10)
    explorer = open_explored(cap.write())
    answer = explorer.over_time(read_state("", explorer.ts_from, explorer.ts_to).asked)
    seen = {row["step"] for row in answer["passes"]}
    assert [step for step in range(answer["last"] + 1) if step not in seen] == list(range(40, 60))
    assert {row["step"] for row in answer["rows"]} == seen
    explorer.capture.close()


def test_a_capture_without_passes_or_without_activity_is_shown_as_that(tmp_path: Path) -> None:
    quiet = SyntheticCapture(tmp_path / "quiet", seconds=2)
    quiet.sample(quiet.add_session(), "idle", "Client:ClientRead", 0, 2)
    for cap, said in ((SyntheticCapture(tmp_path / "empty", seconds=0), "no passes were recorded"), (quiet, "no session was active")):
        cap.path.parent.mkdir()
        explorer = open_explored(cap.write())
        asked = read_state("", explorer.ts_from, explorer.ts_to).asked
        assert any(said in note for note in explorer.about()["notes"])
        assert explorer.over_time(asked)["rows"] == [] and explorer.ranking(asked, "event")["rows"] == []
        assert explorer.ranking(asked, "object")["rows"] == [] and explorer.locks(asked)["trees"] == []
        explorer.capture.close()


# -- what is refused ---------------------------------------------------------------------------------------------------

STRANGE = {
    "by=colour": "there is no ranking by 'colour'",
    "colour=red": "'colour' is nothing that the page shows",
    "from=abc": "'abc' is no number of seconds",
    "from=-1": "'-1' is no number of seconds",
    "from=1e3": "is no number of seconds",
    "from=٣": "is no number of seconds",
    "from=": "'' is no number of seconds",
    "from=30&to=20": "the window must lie between 0 and 60.000 s",
    "from=20&to=20": "and begin before it ends",
    "to=61": "the window must lie between 0 and 60.000 s",
    "from=70&to=80": "the window must lie between 0 and 60.000 s",
    "from": "the address cannot be read",
    "from=1&from=2": "'from' is given twice",
    "application=%ff": "the address cannot be read",
    "application=%00": "none that a capture has",
    "statement=abc": "'abc' is no number of a statement",
    "session=99999999999999999999": "is no number of a session",
    "&".join(f"a{n}=1" for n in range(50)): "the address cannot be read",
    "application=" + "x" * 20_000: "none that a capture has",
}


@pytest.mark.parametrize("query", STRANGE, ids=lambda query: query[:20])
def test_an_address_that_is_not_understood_is_one_clear_error(explorer: Explorer, query: str) -> None:
    with pytest.raises(LeadlineError) as caught:
        read_state(query, explorer.ts_from, explorer.ts_to)
    assert STRANGE[query] in caught.value.message
    assert len(caught.value.message) < 200


def test_a_capture_without_sessions_is_one_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wire = tmp_path / "wire.leadline"
    assert run(["net", "packets", "--pcap", str(a_login(tmp_path / "login.pcap")), "-o", str(wire)]) == 0
    for capture in (HostCapture(tmp_path).write(), trace_of_semget(tmp_path / "trace.leadline"), wire):
        capsys.readouterr()
        assert run(["explore", str(capture), "--no-browser"]) == 2
        error = capsys.readouterr().err
        assert error.startswith("error: the capture has no samples of sessions to explore\n") and error.count("error:") == 1
    assert run(["explore", str(tmp_path / "nothing"), "--no-browser"]) == 2
    assert capsys.readouterr().err.count("error:") == 1


def test_packages_that_are_missing_are_named(path: Path) -> None:
    script = "import sys; sys.modules['uvicorn'] = None\nfrom leadline.cli import run\nsys.exit(run(sys.argv[1:]))"
    line = [sys.executable, "-c", script, "explore", str(path), "--no-browser"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[0] == "error: the page needs packages that are not installed (uvicorn)"
    assert "hint: pip install 'leadline[web]'" in done.stderr


# -- over HTTP ---------------------------------------------------------------------------------------------------------


def started(path: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    line = [sys.executable, "-m", "leadline", "explore", str(path), "--no-browser", *options]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    url = process.stdout.readline().strip()
    if not url.startswith(("http://127.0.0.1:", "{")):
        process.kill()
        pytest.fail(f"{url} {process.stderr.read()}")
    return process, url


@pytest.fixture(scope="module")
def url(path: Path) -> Iterator[str]:
    process, url = started(path)
    assert ask(url, "/api/about")[0] == 200  # from now on it is open
    yield url
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_S) == 0


def ask(url: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], str]:
    parts = urlsplit(url)
    with closing(http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=PATIENCE_S)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()


def test_the_page_asks_for_what_the_explorer_answers(url: str, explorer: Explorer) -> None:
    query = "from=12&to=40&class=Lock&by=session&locks=1"
    state = read_state(query, explorer.ts_from, explorer.ts_to)
    for path, expected in (
        ("time", explorer.over_time(state.asked)), ("ranking", explorer.ranking(state.asked, "session")),
        ("locks", explorer.locks(state.asked)), ("about", explorer.about() | {"other": None, "earlier": []}),
        ("findings", explorer.findings()), ("marks", explorer.marks()), ("findings-of", explorer.findings_of(state.asked)),
    ):  # fmt: skip
        status, headers, body = ask(url, f"/api/{path}?{query}")
        assert (status, headers["content-type"]) == (200, "application/json")
        assert json.loads(body) == json.loads(json.dumps(expected))
    status, headers, body = ask(url, f"/?{query}")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'self'" in headers["content-security-policy"] and headers["x-content-type-options"] == "nosniff"
    assert " style=" not in body and "<script>" not in body  # the policy would refuse both


@pytest.mark.parametrize("place", ["/", "/api/time", "/api/ranking", "/api/locks", "/api/compare", "/api/findings-of"])
def test_a_strange_address_is_400(url: str, place: str) -> None:
    for query, said in STRANGE.items():
        if query.isascii():
            status, _, body = ask(url, f"{place}?{query}")
            assert (status, said in json.loads(body)["error"]["message"]) == (400, True), (query, body)


def test_errors_for_people_are_pages_and_their_text_is_text(url: str) -> None:
    status, headers, body = ask(url, "/?by=%3Cscript%3Ealert(1)%3C/script%3E", accept="text/html")
    assert (status, headers["content-type"]) == (400, "text/html; charset=utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in body and "<script>" not in body


def test_it_is_on_loopback_and_answers_its_own_name_alone(url: str) -> None:
    with closing(on_loopback(0)) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"
    port = urlsplit(url).port
    for path in ("/", "/api/time", "/static/explore.js"):
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "127.0.0.1.evil.example", "", "192.0.2.1"):
            assert ask(url, path, host=host)[0] == 403, (path, host)
        assert ask(url, path, origin="http://evil.example")[0] == 403
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}"):
            assert ask(url, path, host=host)[0] == 200, (path, host)


def test_other_paths_and_methods_are_refused(url: str) -> None:
    for path in ("/nothing", "/static/index.html", "/static/../app.py", "/static/", "/api/", "//evil.example"):
        assert ask(url, path)[0] == 404, path
    assert ask(url, "/api/time", method="POST")[0] == 405


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(path: Path, number: signal.Signals) -> None:
    process, url = started(path, "--json")
    assert json.loads(url)["pid"] == process.pid
    process.send_signal(number)
    _, stderr = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, stderr) == (0, "Ctrl-C ends it\n")


def test_a_port_that_is_taken_is_one_error(path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explore", str(path), "--no-browser", "--port", str(urlsplit(url).port)]) == 2
    assert capsys.readouterr().err.startswith("error: cannot listen: Address already in use\n")


def test_questions_are_quick(explorer: Explorer) -> None:
    """Not a measurement: a question that reads files or computes a view each time takes longer than this."""
    for query in ("", "class=Lock&by=object", f"statement=13&by=session&application={quote(NASTY)}"):
        state = read_state(query, explorer.ts_from, explorer.ts_to)
        begun = time.monotonic()
        explorer.over_time(state.asked)
        explorer.ranking(state.asked, state.by)
        assert time.monotonic() - begun < 3


def test_statements_and_sessions_have_names(explorer: Explorer) -> None:
    assert explorer.label("statement", "13") == LONG
    assert explorer.label("statement", "") == "(no statement known)"
    assert explorer.label("session", "999") == "session 999"
    assert explorer.label("application", "") == "(none)"


def test_seconds_of_a_counter_are_spread_over_its_interval() -> None:
    """The run queue is read once a second: a chart of finer steps has it in all of them, and not as a peak in one."""
    whole = queries.Asked(0, 2_000_000_000)
    db = duckdb.connect()
    rows = "(1_000_000_000, 'CPU', 1.0, 1.0, true), (1_950_000_000, 'Lock', 0.1, null, false)"
    db.execute(f"create table db_time as select * from (values {rows}) t(ts, wait_class, weight_s, cpu_queue_s, from_counter)")
    query = queries.over_time(whole, 250_000_000, 1_000_000_000)
    assert db.execute(query.shown).fetchall() == [(step, "CPU", 0.25, 0.25) for step in range(4)] + [(7, "Lock", 0.1, 0)]
