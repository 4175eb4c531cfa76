"""The HTML report: complete, safe, loads nothing, and drawn right in a browser at both widths."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser
from conftest import no_oracle
from example_capture import LONG, NASTY, example
from findings_synthetic import SyntheticCapture
from leadline.capture.reader import open_capture
from leadline.cli import run
from leadline.errors import LeadlineError
from leadline.findings import evaluate
from leadline.views.flame import folded
from leadline.views.flame_svg import flame_svg
from leadline.views.report import breakable, charts, write_report
from leadline.views.report.markdown import to_html
from leadline.views.report.model import evidence_table
from leadline.views.sections.frame import setting
from leadline.views.wait_classes import ORDER, rank, wait_class
from leadline.views.where import Slice, Window
from trace_synthetic import trace_of_semget


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="module")
def report(folder: Path) -> Path:
    return write_report(example(folder).write(), folder / "report.html")


@pytest.fixture(scope="module")
def trace(folder: Path) -> Path:
    return trace_of_semget(folder / "trace.leadline")


class Page(HTMLParser):
    """The tags, the resources they would load, the ids, and the text outside scripts and styles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.resources: list[str] = []
        self.ids: set[str] = set()
        self.text = ""
        self._inside: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag in ("script", "style"):
            self._inside.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "srcset", "data", "action", "poster"):
                self.resources.append(value or "")
            if name == "id":
                self.ids.add(value or "")

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.text += data


# -- the file ----------------------------------------------------------------------------------------------------------


def test_the_report_has_everything(report: Path, folder: Path) -> None:
    page = Page(report.read_text())
    text = " ".join(page.text.split())
    with_capture = open_capture(folder / "synthetic.leadline")
    findings = evaluate(with_capture).findings
    with_capture.close()
    assert {
        "time_chart",
        "lane_chart",
        "findings",
        "classes",
        "statements",
        "objects",
        "sessions",
        "lock_trees",
        "not_measured",
        "target_facts",
    } <= page.ids
    for finding in findings:
        assert " ".join(finding.statement.split()) in text
        assert finding.id in text
    for expected in (
        "Database time615.6 sin 60.0 s observed",
        "10.26on average, on 2 CPUs",
        "pid 7001 batch: idle in transaction, transaction 36.0 s old",
        "pid 7002 web: waits for ShareLock on transaction 900 against ExclusiveLock",
        "block 117",
        "btree right-most leaf",
        LONG,
        "block devices are not visible in this container",
        "work_mem",
        "kernel.release",
        "0.17% of one CPU",
        "What to do",
        "How to verify",
        "from lock_chain",
    ):
        assert expected in text, expected


def test_the_report_loads_nothing(report: Path) -> None:
    html = report.read_text()
    page = Page(html)
    assert page.resources and all(r.startswith("#") for r in page.resources)
    assert not {"link", "iframe", "object", "embed", "img", "base"} & set(page.tags)
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', html)
    assert policy and "default-src 'none'" in policy[1] and "http" not in policy[1]
    assert "@import" not in html and not re.search(r"url\(\s*['\"]?(?!#|data:)", Page(html).text)
    assert len(html) < 2_000_000


def test_text_from_the_server_stays_text(report: Path) -> None:
    html = report.read_text()
    assert "<script>alert" not in html
    assert NASTY in Page(html).text


def test_a_capture_without_passes_and_an_interrupted_one_are_reported(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, seconds=0)
    path = cap.write()
    manifest = json.loads((path / "manifest.json").read_text())
    manifest |= {"status": "recording", "cost": {}, "probes": {"sessions": {"status": "ok"}}}
    manifest["clock"]["ts_to"] = None
    (path / "manifest.json").write_text(json.dumps(manifest))
    text = Page(write_report(path, tmp_path / "r.html").read_text()).text
    assert "was interrupted" in text
    assert "No session was active" in text


def test_what_was_not_looked_at_is_not_called_absent(tmp_path: Path) -> None:
    cap = SyntheticCapture(tmp_path, rate_hz=5, seconds=10, tier="sql")
    cap.background()
    cap.probe("locks", "off", "no right to read the locks")
    cap.probe("buffers", "off", "the server is on another host")
    text = Page(write_report(cap.write(), tmp_path / "r.html").read_text()).text
    assert "read over SQL at 5 Hz" in text
    assert "Not looked at: no right to read the locks." in text
    assert "Not looked at: the server is on another host." in text
    assert "No session was seen waiting" not in text


def test_errors_leave_no_half_report(folder: Path, report: Path, tmp_path: Path) -> None:
    with pytest.raises(LeadlineError) as e:
        write_report(tmp_path / "none.leadline", tmp_path / "r.html")
    assert e.value.kind == "not_found"
    with pytest.raises(LeadlineError) as e:
        write_report(folder / "synthetic.leadline", tmp_path / "none" / "r.html")
    assert e.value.kind == "storage"
    assert list(tmp_path.iterdir()) == []


def test_the_command_names_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(folder / "synthetic.leadline")]) == 0
    assert Path(capsys.readouterr().out.strip()) == folder / "synthetic.html"
    assert run(["report", str(folder / "synthetic.leadline"), "-o", str(folder / "x.html"), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer == {"report": str(folder / "x.html"), "bytes": (folder / "x.html").stat().st_size}


# -- its parts ---------------------------------------------------------------------------------------------------------


def test_markdown_is_safe_and_offline() -> None:
    html = to_html("see [the manual](https://example.org/a?b=1&c=2), <https://example.org>, `a < b` <b>no</b> ![pic](x.png)")
    assert "the manual (https://example.org/a?b=1&amp;c=2)" in html
    assert "<a" not in html and "<b>" not in html and "<img" not in html
    assert "<code>a &lt; b</code>" in html
    assert to_html("[x](javascript:alert(1))").count("<a") == 0


def test_evidence_becomes_a_table() -> None:
    evidence = [{"pid": 1, "ts_from": 3_500_000_000, "what": "a"}, {"pid": None, "more": [1, 2], "what": "b\nc"}]
    columns, rows = evidence_table(evidence, 1_000_000_000)
    assert columns == [("pid", True), ("ts_from [s]", True), ("what", False), ("more", False)]
    assert rows == [["1", "2.5", "a", ""], ["", "", "b c", "[1, 2]"]]


def test_settings_in_units_people_read(report: Path) -> None:
    assert setting("16384", "8kB") == "128 MB"
    assert setting("1024", "MB") == "1 GB"
    assert setting("100", "kB") == "100 kB"
    assert setting("0", "kB") == "0 B"
    assert [setting("5000", "ms"), setting("-1", "kB"), setting("on", ""), setting("17", "")] == ["5000 ms", "-1", "on", "17"]
    text = Page(report.read_text()).text
    assert "64 MB" in text and "4 MB" in text, "work_mem and its default"
    assert "shared_buffers" not in text, "set in the file, but to the default"


def test_breakable_escapes_what_it_breaks() -> None:
    assert breakable("public.order_ItemsX<b>") == "public.<wbr>order_<wbr>Items<wbr>X&lt;b&gt;"
    assert breakable("tcp 10.0.0.1:5432") == "tcp 10.0.0.1:5432"


def test_the_stack_of_the_chart_is_made_here() -> None:
    of = Window(None, 0, 10.0, 10.0, 0.0, 100, 0, 10.0, "shm", 4, 30.0, 30.0)
    slices = [Slice(0, 5, "Lock", 2.0), Slice(0, 5, "CPU", 1.0), Slice(7, 10, "IO", 1.0)]
    spec = charts.time_chart(slices, of)
    rows = [(r["from"], r["class"], r["below"], r["above"]) for r in spec["data"]["values"]]
    assert rows == [(0, "CPU", 0.0, 1.0), (0, "Lock", 1.0, 3.0), (7, "IO", 0.0, 1.0)]
    assert spec["layer"][1]["data"]["values"][0]["cpus"] == 4
    assert "<svg" in charts.still(spec)
    assert spec["layer"][0]["encoding"]["color"]["scale"]["range"] == [], "a still picture must not colour the page's chart"


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_class_colours_stand_out_from_both_backgrounds_and_differ() -> None:
    for c in ORDER:
        for colour, paper in ((c.light, "#ffffff"), (c.dark, "#1a1f26")):
            high, low = sorted((luminance(colour), luminance(paper)), reverse=True)
            assert (high + 0.05) / (low + 0.05) >= 2.6, (c.name, colour)
    assert len({c.light for c in ORDER}) == len({c.dark for c in ORDER}) == len(ORDER)
    assert sorted(["New", "Lock", "CPU"], key=rank) == ["CPU", "Lock", "New"]
    assert wait_class("New").name == "New"


# -- in a browser ------------------------------------------------------------------------------------------------------

TOO_WIDE = """[...document.querySelectorAll("body *")]
  .filter((e) => e.getBoundingClientRect().right > innerWidth + 1 && !e.closest(".scroll") && !e.closest("pre"))
  .map((e) => e.tagName + "." + e.className)"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if CHROMIUM is None:
        no_oracle("no Chromium on this host (Debian package chromium)")
    with Browser(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.mark.parametrize(("width", "dark"), [(1366, False), (1366, True), (390, False), (390, True)])
def test_the_report_is_drawn_and_fits(width: int, dark: bool, report: Path, browser: Browser) -> None:
    """Both charts drawn in the colours of the scheme, nothing wider than the page with every fold open, nothing loaded."""
    browser.open(report, width=width, dark=dark)
    browser.wait_for("document.querySelectorAll('#time_chart .mark-rect path').length > 100")
    browser.wait_for("document.querySelectorAll('#lane_chart .mark-rect path').length > 100")
    browser.value("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert browser.value("innerWidth") == width
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(TOO_WIDE) == []
    assert browser.requests() == [report.as_uri()]
    assert browser.complaints() == []
    assert browser.value("getComputedStyle(document.body).backgroundColor") == ("rgb(18, 22, 27)" if dark else "rgb(246, 247, 249)")
    colours = set(browser.value("[...document.querySelectorAll('#time_chart .mark-rect path')].map((e) => e.getAttribute('fill'))"))
    expected = {c.dark if dark else c.light for c in map(wait_class, ("CPU", "IO", "Lock", "LWLock", "Client", "IPC", "Timeout"))}
    assert colours == expected


@pytest.mark.parametrize(("width", "dark"), [(1366, False), (390, True)])
def test_the_report_of_a_trace_fits(width: int, dark: bool, trace: Path, browser: Browser, folder: Path) -> None:
    page = folder / f"trace-{width}.html"
    write_report(trace, page)
    browser.open(page, width=width, dark=dark)
    browser.wait_for("document.readyState === 'complete'")
    browser.value("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value(TOO_WIDE) == []
    assert (browser.requests(), browser.complaints()) == ([page.as_uri()], [])
    for title in ("Threads", "System calls", "Failed calls", "Sleeps in the kernel", "Requests of disks"):
        assert title in browser.value("document.body.innerText")


@pytest.mark.parametrize(("width", "dark"), [(1366, False), (1366, True), (390, False), (390, True)])
def test_a_flame_graph_opens_alone_zooms_and_is_searched(width: int, dark: bool, trace: Path, browser: Browser, folder: Path) -> None:
    page = folder / f"flame-{width}-{dark}.svg"
    with closing(open_capture(trace)) as capture:
        page.write_text(flame_svg(folded(capture, "off-cpu"), "Asleep", "of a test", "ns"), encoding="utf-8")
    browser.open(page, width=width, dark=dark)
    browser.wait_for("document.readyState === 'complete' && document.getElementById('told') !== null")
    assert (browser.requests(), browser.complaints()) == ([page.as_uri()], [])
    # It begins at the top of the window, which has the colours of the scheme.
    assert browser.value("document.querySelector('.title').getBoundingClientRect().top") < 60
    paper = "rgb(18, 22, 27)" if dark else "rgb(255, 255, 255)"
    assert browser.value("getComputedStyle(document.documentElement).backgroundColor") == paper
    box = """[...document.querySelectorAll("#boxes g")].find((g) => g.dataset.n === "semget")"""
    before = browser.value(f"{box}.getBoundingClientRect().width")
    browser.value(f"{box}.dispatchEvent(new MouseEvent('click', {{bubbles: true}}))")
    assert browser.value(f"{box}.getBoundingClientRect().width") > 1.9 * before
    browser.value("prompt = () => '^semget$'")
    browser.value("document.getElementById('search').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    assert browser.value("document.getElementById('found').textContent") == "^semget$: 47.4 %"
    assert browser.value("[...document.querySelectorAll('#boxes g.hit')].map((g) => g.dataset.n)") == ["semget"]


def test_charts_follow_a_change_of_scheme(report: Path, browser: Browser) -> None:
    browser.open(report, width=1366, dark=False)
    fill = "document.querySelector('#time_chart .mark-rect path')?.getAttribute('fill')"
    browser.wait_for(f"{fill} === '{wait_class('CPU').light}'")
    browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    browser.wait_for(f"{fill} === '{wait_class('CPU').dark}'")
