"""The page of leadline explore in Chromium: drag, keys, filters, back, a link that shows the same; at both widths, without complaints."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import axe
import pytest
from conftest import background, no_oracle
from eventful_capture import eventful
from example_capture import NASTY, example
from leadline.recorder.events import tell
from leadline.recorder.incidents import Incident
from recorded_pieces import WALL_0, as_piece, begun_at
from servers import Unavailable

PATIENCE_S = 60


@contextmanager
def served(*words: str | Path) -> Iterator[str]:
    line = [sys.executable, "-m", "leadline", "explore", *map(str, words), "--no-browser"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    with closing(urlopen(f"{url}api/about")):  # from now on it is open
        yield url
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE_S) == 0


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(example(tmp_path_factory.mktemp("explore")).write()) as url:
        yield url


@pytest.fixture(scope="module")
def eventful_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A capture with marks, compared with the example."""
    folder = tmp_path_factory.mktemp("eventful")
    for name in ("a", "b"):
        (folder / name).mkdir()
    with served(eventful(folder / "a").write(), "--with", example(folder / "b").write()) as url:
        yield url


@pytest.fixture(scope="module")
def recorder_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Pieces of 60 s at 0 and 60 s, and one at 300 s; an event, a detail capture of it, and a finding."""
    folder = tmp_path_factory.mktemp("recorder")
    events = [
        Incident(change, WALL_0 + at * 10**9, WALL_0 + 40 * 10**9, rule, NASTY, "medium", 75.7, 10.0, "7.6 sessions", capture=c)
        for change, at, rule, c in (
            ("new", 50, "UNUSUAL", "detail/20251009T085410Z.leadline"), ("new", 60, "BLOCK-CHAIN", ""), ("over", 90, "UNUSUAL", ""),
        )
    ]  # fmt: skip
    for number, second in enumerate((0, 60, 300), 1):
        with begun_at(second):
            (folder / str(number)).mkdir()
            as_piece(example(folder / str(number)), folder / "shop", number, second, process="1@1")
    tell({}, events, folder / "shop")
    with begun_at(50):
        (folder / "detail").mkdir()
        as_piece(example(folder / "detail"), folder / "shop" / "detail", 1, 50)
    with served(folder / "shop") as url:
        yield url


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        no_oracle("Chromium or its driver is not installed: apt-get install chromium chromium-driver")
    try:
        from selenium import webdriver
        from selenium.common.exceptions import WebDriverException
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        no_oracle("selenium is not installed")
    options = webdriver.ChromeOptions()
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        started = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    except WebDriverException as e:
        no_oracle(f"Chromium does not start: {e}")
    yield started
    started.quit()


class Page:
    """The page at a width, and what one does with it."""

    def __init__(self, driver: Any, url: str, width: int = 1280, height: int = 800) -> None:
        self.driver, self.url = driver, url
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": width < 700})

    def go(self, query: str) -> None:
        self.driver.get(self.url + query)
        self.wait()

    def value(self, script: str) -> Any:
        return self.driver.execute_script(f"return {script}")

    def until(self, true: Callable[[], Any], what: str) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (value := true()):
            assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
            time.sleep(0.03)
        return value

    def wait(self) -> None:
        """Until it shows what its address says, and nothing that comes later moves what is to be clicked."""
        drawn = "document.body && document.body.dataset.ready === (location.search || '?') && 'marks' in document.body.dataset"
        self.until(lambda: self.value(drawn), "the page is drawn")

    @property
    def state(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.driver.current_url).query).items()}

    @property
    def rows(self) -> dict[str, str]:
        """Seconds by name, as the ranking shows them."""
        shown = self.value("[...document.querySelectorAll('#rows tbody tr')].map(r => [r.cells[0].textContent, r.cells[1].textContent])")
        return dict(shown)

    @property
    def filters(self) -> list[str]:
        return [str(text) for text in self.value("[...document.querySelectorAll('#filters .value')].map(f => f.textContent)")]

    def click(self, selector: str, text: str = "") -> None:
        found = [one for one in self.driver.find_elements("css selector", selector) if text in one.text]
        found[0].click()
        self.wait()

    def drag(self, first: float, last: float) -> None:
        """From one part of the chart to another; 0 is its left edge, 1 the right one."""
        box = self.value("(({x, y, width, height}) => ({x, y, width, height}))(document.querySelector('#chart').getBoundingClientRect())")
        y, left, wide = box["y"] + 80, box["x"] + 40, box["width"] - 48
        for kind, part in (("mousePressed", first), ("mouseMoved", (first + last) / 2), ("mouseMoved", last), ("mouseReleased", last)):
            at = {"type": kind, "x": left + part * wide, "y": y, "button": "left", "buttons": 1, "clickCount": 1}
            self.driver.execute_cdp_cmd("Input.dispatchMouseEvent", at)
        self.wait()

    def swipe(self, first: float, last: float) -> None:
        """The same with a finger."""
        box = self.value("(({x, y, width, height}) => ({x, y, width, height}))(document.querySelector('#chart').getBoundingClientRect())")
        left, wide = box["x"] + 40, box["width"] - 48
        for kind, parts in (("touchStart", [first]), ("touchMove", [(first + last) / 2]), ("touchMove", [last]), ("touchEnd", [])):
            points = [{"x": left + part * wide, "y": box["y"] + 80} for part in parts]
            self.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        self.wait()

    def press(self, keys: str) -> None:
        self.driver.find_element("id", "chart").send_keys(keys)
        self.wait()

    def complaints(self) -> list[str]:
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]


@pytest.fixture
def page(driver: Any, url: str) -> Iterator[Page]:
    page = Page(driver, url)
    page.complaints()
    yield page
    assert page.complaints() == []


def test_a_window_a_filter_and_back(page: Page) -> None:
    page.go("")
    whole = page.rows
    assert whole["CPU"] == "282.6" and "Lock:tuple" in whole
    page.drag(0.25, 0.75)
    assert [round(float(page.state[edge])) for edge in ("from", "to")] == [15, 45]
    window = page.rows
    assert window["Lock:tuple"] == "50.0" and window["CPU"] != whole["CPU"]
    page.click("#rows .name", "Lock:tuple")
    assert page.state["event"] == "Lock:tuple" and page.filters == ["Lock:tuple"]
    assert page.state["by"] == "statement" and list(page.rows.values()) == ["50.0"]
    page.click("#rows .name")
    assert page.filters == ["Lock:tuple", page.value("document.querySelector('.filter[data-by=statement] .value').textContent")]
    address = page.driver.current_url
    shown = page.rows
    page.driver.refresh()
    page.wait()
    assert (page.driver.current_url, page.rows, len(page.filters)) == (address, shown, 2)
    page.click(".filter", "Lock:tuple")
    assert "event" not in page.state and len(page.filters) == 1
    page.driver.back()
    page.wait()
    assert page.driver.current_url == address and len(page.filters) == 2
    for _ in range(3):
        page.click("#back")
    assert page.state == {} and page.rows == whole


def test_keys_choose_the_window(page: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page.go("?from=20&to=40")
    page.press("+")
    assert (page.state["from"], page.state["to"]) == ("25", "35")
    page.press(Keys.ARROW_RIGHT)
    assert (page.state["from"], page.state["to"]) == ("27.5", "37.5")
    page.press(Keys.ARROW_LEFT)
    page.press("-")
    assert (page.state["from"], page.state["to"]) == ("20", "40")
    page.press(Keys.HOME)
    assert page.state == {}


def test_all_that_can_be_chosen_is_reached_by_tab_and_has_a_name(page: Page) -> None:
    page.go("?class=Lock&locks=1")
    nameless = (
        "[...document.querySelectorAll('button, select, [tabindex]')].filter(e => !(e.getAttribute('aria-label') || e.textContent).trim())"
    )
    assert page.value(f"{nameless}.length") == 0
    skipped = "[...document.querySelectorAll('button:not([disabled]), select, summary')].filter(e => e.tabIndex < 0)"
    assert page.value(f"{skipped}.length") == 0
    legend = page.value("[...document.querySelectorAll('#legend button')].map(b => b.textContent)")
    assert len(legend) == 1 and legend[0].startswith("Lock 78.0 s")


def test_text_of_the_server_stays_text(page: Page) -> None:
    page.go("?by=application&locks=1")
    assert NASTY in page.rows
    page.go("?by=statement")
    assert any(NASTY in name for name in page.rows)
    page.click("#rows .name", "script")
    assert NASTY in page.filters[0]
    assert page.value("document.scripts.length") == 2  # of the page itself


def test_the_lock_tree_and_the_findings(page: Page) -> None:
    page.go("")
    page.click("#show-locks")
    tree = page.value("document.querySelector('#trees').innerText")
    assert "pid 7001 batch: idle in transaction" in tree and "pid 7002 web waited 28.0 s for ShareLock" in tree
    page.until(lambda: page.value("document.querySelectorAll('#findings .finding').length") > 1, "findings")
    assert page.value("document.querySelectorAll('#chart .mark').length") > 1
    page.click("#findings .finding", "BLOCK-CHAIN")
    assert [round(float(page.state[edge])) for edge in ("from", "to")] == [12, 40]


def test_the_sql_is_shown(page: Page) -> None:
    page.go("?from=10&to=20&application=web")
    assert page.value("document.querySelector('#chart-sql pre').textContent").endswith("group by all order by step, wait_class")
    assert "application = 'web'" in page.value("document.querySelector('#ranking-sql pre').textContent")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_fits(driver: Any, url: str, width: int, height: int, dark: bool) -> None:
    page = Page(driver, url, width, height)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    page.go("?from=10&to=50&application=web")
    assert page.value("document.documentElement.scrollWidth") <= width
    ends = page.value("document.querySelector('#rows').getBoundingClientRect().bottom")
    if width >= 700:
        assert ends < height  # chart and ranking, without scrolling
    page.go("")
    assert page.value("document.documentElement.scrollWidth") <= width
    luminance = page.value("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).slice(0, 3).reduce((a, b) => a + +b, 0)")
    assert (luminance < 200) == dark
    if width < 700:
        page.swipe(0.2, 0.6)
        assert [round(float(page.state[edge])) for edge in ("from", "to")] == [12, 36]
    assert page.complaints() == []


def test_what_an_address_gets_wrong_is_said_on_the_page(driver: Any, url: str) -> None:
    page = Page(driver, url)
    driver.get(url + "?from=70&to=80")
    assert "the window must lie between 0 and 60.000 s" in page.value("document.body.innerText")
    assert page.value("document.querySelector('a').getAttribute('href')") == "/"
    page.complaints()  # the browser notes the 400


def test_a_page_whose_command_was_killed_says_so(driver: Any, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "leadline", "explore", example(tmp_path).write(), "--no-browser"]
    with background(line, stdout=subprocess.PIPE) as command:
        assert command.stdout is not None
        page = Page(driver, command.stdout.readline().decode().strip())
        page.go("")
        command.kill()
        command.wait()
        driver.find_element("id", "in").click()
        page.until(lambda: "leadline explore has ended" in page.value("document.querySelector('#error').textContent"), "an error")
    page.complaints()  # the browser notes that nobody answered


# -- marks, windows beside each other, recorders -----------------------------------------------------------------------


def marked(page: Page) -> None:
    page.until(lambda: page.value("document.body.dataset.marks"), "marks")


def test_marks_are_drawn_in_their_places_and_listed(driver: Any, eventful_url: str) -> None:
    page = Page(driver, eventful_url)
    page.go("")
    marked(page)
    listed = page.value("[...document.querySelectorAll('#marks summary')].map(s => s.textContent)")
    assert listed == ["checkpoints 2", "server away or not seen 1", "DDL 3", "clock set 1", "passes missed 1"]
    drawn = "[g.querySelector('text').textContent, g.querySelectorAll('rect').length]"
    rows = page.value(f"[...document.querySelectorAll('#chart .event')].map(g => {drawn})")
    assert rows == [["ckpt", 2], ["away", 1], ["DDL", 3], ["clock", 1]]
    page.click("#marks summary", "DDL")
    page.click("#marks .at", "31.0 to 32.0 s")
    assert (page.state["from"], page.state["to"]) == ("30.5", "32.5")
    assert page.value("document.querySelectorAll('#chart .event.ddl rect').length") == 2  # also the one that began before
    ends = "(({x, width}) => [x.baseVal.value, x.baseVal.value + width.baseVal.value])(r)"
    edges = page.value(f"[...document.querySelectorAll('#chart .event rect')].map(r => {ends})")
    width = page.value("document.querySelector('#chart').clientWidth")
    assert all(40 <= low < high <= width - 8 for low, high in edges)
    page.go("?from=12&to=13")
    marked(page)
    assert page.value("[...document.querySelectorAll('#chart .event text')].map(t => t.textContent)") == ["ckpt"]  # from before to after
    assert "checkpoints: 2" in page.value("document.querySelector('#marks-sql').textContent")
    assert page.complaints() == []


def test_marks_are_reached_by_the_keyboard(driver: Any, eventful_url: str) -> None:
    from selenium.webdriver.common.keys import Keys

    page = Page(driver, eventful_url)
    page.go("")
    marked(page)
    summary = driver.find_element("css selector", "#marks [data-kind=checkpoint] summary")
    summary.send_keys(Keys.ENTER)
    driver.switch_to.active_element.send_keys(Keys.TAB)
    assert page.value("document.activeElement.className") == "at"
    driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.wait()
    assert [float(page.state[edge]) for edge in ("from", "to")] == pytest.approx([6.99, 24.99], abs=0.002)


def grown(page: Page) -> dict[str, list[str]]:
    rows = page.value("[...document.querySelectorAll('#grown tbody tr')].map(r => [...r.cells].map(c => c.textContent))")
    return {name: rest for name, *rest in rows}


def test_the_time_before_is_compared(page: Page) -> None:
    page.go("?from=12&to=22&by=class&class=Lock")
    driver = page.driver
    driver.find_element("css selector", "#vs option[value=before]").click()
    page.wait()
    assert page.state["vs"] == "2-12" and page.filters == ["Lock"]
    assert grown(page) == {"Lock": ["2.400", "0.000", "+2.400"]}  # one waits for 10 s, two for 7 s
    assert page.value("document.querySelectorAll('#chart path.outline').length") == 2
    assert "no verdict" in page.value("document.querySelector('#said').textContent")
    address, shown = driver.current_url, grown(page)
    driver.get("about:blank")
    driver.get(address)
    page.wait()
    assert grown(page) == shown
    page.press("-")
    assert page.state["vs"] == "2-12" and page.state["from"] == "7"
    assert "overlap" in page.value("document.querySelector('#said').textContent")
    page.click(".filter", "compared with")
    assert "vs" not in page.state and page.value("document.querySelector('#grown').hidden")


def test_another_capture_is_compared_and_what_refuses_is_said(driver: Any, eventful_url: str) -> None:
    page = Page(driver, eventful_url)
    page.go("?from=10&to=20&by=event")
    driver.find_element("css selector", "#vs option[value=same]").click()
    page.wait()
    assert page.state["vs"] == "same"
    page.press("-")
    said = page.value("document.querySelector('#said').textContent")
    assert "A: 5.00 to 25.00 s of" in said and "B: 5.00 to 25.00 s of" in said, "it follows"
    page.press("+")
    assert "not comparable" in page.value("document.querySelector('#said .refused').textContent")
    assert grown(page)["CPU"][0] == "0.000" and grown(page)["CPU"][2].startswith("\u2212")
    page.go("?vs=0-60&by=session")
    assert "sessions are numbered anew" in page.value("document.querySelector('#more').textContent")
    assert page.complaints() == []


def test_the_outline_has_gaps_where_nothing_was_seen(page: Page) -> None:
    page.go("?from=0&to=4")
    page.driver.execute_script(
        """const passes = [0, 1, 3].map(step => ({step, observed_s: 1}));
        const rows = [0, 3].map(step => ({step, seconds: 2, wait_class: "CPU"}));
        chart.show({...chart.data, step_s: 1, last: 3}, 2, {length_s: 4, last: 3, passes, rows, sql: []});"""
    )
    d = page.value("document.querySelector('#chart path.outline').getAttribute('d')")
    assert [part.count("H") for part in d.split("M")[1:]] == [2, 1]  # two steps, of which the second is zero; a gap; one more


def test_findings_of_this_window_alone(page: Page) -> None:
    page.go("?from=45&to=55")
    listed = "[...document.querySelectorAll('#findings .finding b')].map(b => b.textContent)"
    page.until(lambda: "BLOCK-CHAIN" in page.value(listed), "findings")
    page.click("#evaluate")
    page.until(lambda: page.value("document.querySelector('#findings-of').textContent").startswith("Of this window alone:"), "its findings")
    assert "BLOCK-CHAIN" not in page.value(listed)
    page.click("#whole")
    assert "BLOCK-CHAIN" in page.value(listed)


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_marks_of_a_recorder_are_drawn_and_listed(driver: Any, recorder_url: str, width: int, height: int) -> None:
    page = Page(driver, recorder_url, width, height)
    page.go("")
    page.until(lambda: not page.value("document.querySelector('.unread')") and page.value("chart.data.rows.length"), "all pieces are read")
    marked(page)
    shown = "[...document.querySelectorAll('#chart .event')].map(g => [g.textContent, g.querySelectorAll('rect').length])"
    assert page.value(shown) == [["away", 1], ["odd", 1], ["found", 1], ["detail", 1]]
    assert page.value("document.documentElement.scrollWidth") <= width
    cut = "[...document.querySelectorAll('#chart .event text')].filter(t => t.getBBox().x < 0).map(t => t.textContent)"
    assert page.value(cut) == []
    page.click("#marks summary", "unusual")
    listed = page.value("document.querySelector('#marks [data-kind=unusual] ol').textContent")
    assert NASTY in listed and "detail: detail/20251009T085410Z.leadline" in listed
    page.click("#marks summary", "detail captures")
    assert "leadline explore " in page.value("document.querySelector('#marks [data-kind=detail] ol').textContent")
    page.click("#marks [data-kind=unusual] .at")
    assert (page.state["from"], page.state["to"]) == ("27.5", "102.5")
    assert page.complaints() == []


def test_a_window_of_a_recorder_is_opened(driver: Any, recorder_url: str) -> None:
    page = Page(driver, recorder_url)
    page.go("")
    page.until(lambda: not page.value("document.querySelector('.unread')") and page.value("chart.data.rows.length"), "all pieces are read")
    assert page.value("document.querySelector('#columns').hidden") and page.value("document.querySelectorAll('#chart .gap').length") == 1
    gap = page.value("document.querySelector('#marks [data-kind=away] ol').textContent")
    assert gap == "08:55:20 to 08:58:20 from one piece to the next"
    assert page.value("[...document.querySelectorAll('#chart .tick')].some(t => /^[0-9][0-9]:[0-9][0-9]/.test(t.textContent))")
    page.drag(0.1, 0.3)
    button = driver.find_element("id", "open-window")
    assert 30 < float(page.state["from"]) < 40 and button.text.startswith("Open this window (2 pieces, ")
    button.click()
    page.until(lambda: "/at/" in driver.current_url, "the window")
    page.wait()
    assert "Lock:tuple" in page.rows and "leadline take --from-recorder" in page.value("document.querySelector('#notes').textContent")
    page.drag(0.5, 0.9)
    assert page.filters == [] and float(page.state["from"]) > 10
    driver.find_element("id", "recorder").click()
    page.wait()
    assert page.value("document.querySelector('#columns').hidden")
    assert page.complaints() == []


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_a_window_of_a_recorder_is_compared_with_another(driver: Any, recorder_url: str, width: int, height: int) -> None:
    page = Page(driver, recorder_url, width, height)
    page.go("?from=300&to=340")
    page.click("#open-window")
    page.until(lambda: "/at/" in driver.current_url, "the window")
    page.wait()
    window = driver.current_url
    driver.find_element("css selector", "#vs option[value=another]").click()
    page.until(lambda: "beside=" in driver.current_url, "the overview")
    page.wait()
    assert page.filters == ["2025-10-09 08:58:20 to 08:59:00 UTC"]
    page.go(f"?{driver.current_url.partition('?')[2]}&from=0&to=30")
    button = driver.find_element("id", "open-window")
    assert button.text.startswith("Compare with this window (1 piece, ")
    button.click()
    page.until(lambda: "~" in driver.current_url, "both windows")
    page.wait()
    assert driver.current_url.startswith(window.rstrip("/")) and page.state["vs"] == "all"
    said = page.value("document.querySelector('#said').textContent")
    assert "A: 0.00 to 40.00 s of 20251009T085820Z.leadline" in said and "B: 0.00 to 30.00 s of 20251009T085320Z.leadline" in said
    assert grown(page)["Lock:tuple"] and page.value("document.querySelector('#chart path.outline') !== null")
    assert page.value("document.documentElement.scrollWidth") <= width
    assert page.complaints() == []


STATES = {
    "overview": "", "filtered": "?from=10&to=50&application=web&class=Lock&locks=1", "compare": "?from=20&to=30&vs=5-15&by=statement",
    "sql": "?from=10&to=50&by=object",
}  # fmt: skip


@pytest.fixture(scope="module")
def oracle() -> str:
    try:
        return axe.script()
    except Unavailable as e:
        no_oracle(f"axe-core cannot be had: {e}")


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("state", [*STATES, "marks", "other capture", "recorder"])
def test_axe_finds_nothing(
    driver: Any, url: str, eventful_url: str, recorder_url: str, oracle: str, width: int, dark: bool, state: str
) -> None:
    addresses = {"marks": eventful_url, "other capture": f"{eventful_url}?vs=0-60", "recorder": recorder_url}
    page = Page(driver, addresses.get(state, url + STATES.get(state, "")), width, 844)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
    page.go("")
    marked(page)
    if state in ("sql", "marks", "recorder"):
        driver.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert axe.violations(driver, oracle) == []
    assert page.value("document.documentElement.scrollWidth") <= width
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_axe_finds_what_is_wrong(page: Page, oracle: str) -> None:
    """The oracle itself: a button without a name, and text that is too pale."""
    page.go("")
    page.driver.execute_script("at('about').append(document.createElement('button')); at('about').style.color = '#ddd'")
    assert {rule for rule, _, _ in axe.violations(page.driver, oracle)} == {"button-name", "color-contrast"}
