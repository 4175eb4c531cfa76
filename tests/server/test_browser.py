"""The pages in Chromium: log in, start a template, watch it live, compare, cancel, share a file that opens offline; by keyboard, too."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from ansible_replays import SPOOLS, replay
from conftest import no_oracle
from example_capture import example
from leadline.book.place import Place
from leadline.book.recorder import Recorder
from recorded_pieces import as_piece, begun_at
from serving import PASSWORD, Served, book, wait_until

SCRIPT = 'sh -c \'for i in $(seq 1 {steps}); do echo "\\033[32mstep $i\\033[0m"; sleep 0.2; done; echo "<b>the end</b>"\''


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with book(tmp_path_factory.mktemp("browser")) as served:
        served.user("ann", "--admin")
        served.do("template", "save", "main", "steps", "--command", SCRIPT, "--about", "Counts.",
                  "--survey", '{"steps": {"kind": "int", "help": "how many", "default": 5, "most": 1000}}')  # fmt: skip
        replay(Place(served.book), SPOOLS[1])
        compared = ("--baseline", "echo n=10", "--variant", "echo n=9", "--metric", "n=([0-9]+)", "--better", "less", "--pairs", "6")
        assert served.leadline("experiment", *compared).returncode == 0
        served.do("template", "start", "main/steps", "--inputs", '{"steps": 2}')
        served.start()
        yield served


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
    """What a test does with a page."""

    def __init__(self, driver: Any, url: str) -> None:
        self.driver, self.url = driver, url

    def go(self, path: str) -> None:
        self.driver.get(self.url + path)

    def find(self, selector: str) -> Any:
        return wait_until(lambda: next(iter(self.driver.find_elements("css selector", selector)), None), selector)

    def type(self, selector: str, text: str) -> None:
        field = self.find(selector)
        field.clear()
        field.send_keys(text)

    def click(self, text: str) -> None:
        self.driver.find_element("xpath", f"//button[normalize-space()='{text}'] | //a[normalize-space()='{text}']").click()

    def text(self, selector: str = "main") -> str:
        found = self.driver.find_elements("css selector", selector)
        try:
            return str(found[0].text) if found else ""
        except Exception:  # it was replaced while we looked
            return ""

    def wait_for(self, text: str, selector: str = "main") -> None:
        wait_until(lambda: text in self.text(selector), f"{text!r} in {selector}")

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


@pytest.fixture
def page(driver: Any, served: Served) -> Iterator[Page]:
    page = Page(driver, served.url)
    yield page
    assert page.complaints() == []


@pytest.fixture
def logged_in(page: Page) -> Page:
    page.go("/runs")
    if page.driver.find_elements("css selector", "#password"):
        page.type("#account", "ann")
        page.type("#password", PASSWORD)
        page.find("#password").submit()
        page.find("#list")
    return page


def test_one_logs_in_starts_a_template_and_watches_it_live(logged_in: Page, served: Served) -> None:
    page = logged_in
    page.click("Templates")
    page.click("steps")
    page.type("[name='input.steps']", "12")
    page.click("Start")
    page.wait_for("step 2", "#log")
    page.wait_for("running", "h1")
    seen_live = page.text("#log")
    assert "the end" not in seen_live  # it was shown while it ran
    page.wait_for("<b>the end</b>", "#log")
    page.wait_for("ok", "h1")
    assert [line for line in page.text("#log").splitlines() if line.startswith("step")] == [f"step {n}" for n in range(1, 13)]
    assert page.find("#log .c-green").text == "step 1"
    assert page.driver.find_elements("css selector", "#log b") == []
    page.wait_for("wall_s")


def test_one_compares_two_runs(logged_in: Page, served: Served) -> None:
    runs = [served.do("template", "start", "main/steps", "--inputs", f'{{"steps": {n}}}')["run"] for n in (1, 2)]
    for uid in runs:
        _wait_for(served, uid)
    page = logged_in
    page.go(f"/runs/{runs[1]}")
    page.find("a.button[href^='/compare']").click()
    page.type("#one", runs[0])
    page.find("#one").submit()
    page.wait_for("input steps")
    assert "+100.0%" in page.text()


def _wait_for(served: Served, uid: str) -> None:
    wait_until(lambda: '"status": "ok"' in served.leadline("book", "show", uid, "--json").stdout, "the run")


def test_one_cancels_a_run(logged_in: Page) -> None:
    page = logged_in
    page.go("/templates")
    page.click("steps")
    page.type("[name='input.steps']", "1000")
    page.click("Start")
    page.wait_for("step 1", "#log")
    page.click("Cancel")
    page.wait_for("cancelled", "h1")
    page.wait_for("cancelled by ann")


def test_one_starts_an_experiment_and_reads_its_verdict(logged_in: Page, served: Served) -> None:
    asked = '{"baseline": "echo n=10", "variant": "echo n={n}", "metric": "n=([0-9]+)", "better": "less", "pairs": 6}'
    survey = '{"n": {"kind": "int", "default": 9}}'
    served.do("template", "save", "main", "tens", "--kind", "experiment", "--experiment", asked, "--survey", survey)
    page = logged_in
    page.go("/templates")
    page.click("tens")
    page.type("[name='input.n']", "8")
    page.click("Start")
    page.wait_for("The variant has 0.8 times the baseline's figure")
    assert page.text(".verdict") == "less"
    assert len(page.driver.find_elements("css selector", ".ratios circle.dot")) == 6
    page.find("dl.figures a[href*='metric=ratio&']").click()
    page.find(".chart .interval")


def test_a_wrong_value_is_told_in_words(logged_in: Page) -> None:
    page = logged_in
    page.go("/templates")
    page.click("steps")
    page.driver.execute_script("document.querySelector(\"[name='input.steps']\").type = 'text'")
    page.type("[name='input.steps']", "many")
    page.click("Start")
    page.wait_for("Steps is not a whole number")
    page.complaints()  # the browser notes the status 422


def test_one_makes_a_template_by_its_fields(logged_in: Page, served: Served) -> None:
    from selenium.webdriver.support.ui import Select

    page = logged_in
    page.go("/templates")
    page.find("main > details > summary").click()
    kind = Select(page.find("form[action='/form/template.save'] select[name='kind']"))
    kind.select_by_visible_text("experiment")
    wait_until(lambda: page.find("[name='experiment.baseline']").is_displayed(), "the fields of an experiment")
    assert not page.find("[name='command']").is_displayed()
    kind.select_by_visible_text("command")
    wait_until(lambda: page.find("[name='command']").is_displayed(), "the field of a command")
    for name, text in (("project", "main"), ("name", "by fields"), ("command", "echo {a} {b}")):
        page.type(f"form[action='/form/template.save'] [name='{name}']", text)
    page.find("details.group > summary").click()
    for n, name in enumerate(("a", "b")):
        if n:
            page.click("One more")
        page.type(f"[name='survey.{n}.name']", name)
        page.type(f"[name='survey.{n}.default']", f"of {name}")
    page.find("[name='command']").submit()
    page.wait_for("by fields")
    made = [one for one in served.do("template", "list")["templates"] if one["name"] == "by fields"]
    assert [list(one["survey"]) for one in made] == [["a", "b"]]


def test_a_run_is_shared_as_one_file_that_opens_offline(logged_in: Page, served: Served, tmp_path: Path) -> None:
    page = logged_in
    uid = served.do("template", "start", "main/steps")["run"]
    _wait_for(served, uid)
    page.go(f"/runs/{uid}")
    assert page.find("a[href$='/export']").text == "One HTML file"
    client = served.client(token=served.token_of("ann"))
    answer = client.call("GET", f"/runs/{uid}/export")
    (file := tmp_path / "run.html").write_bytes(answer.body)
    page.driver.execute_cdp_cmd("Network.enable", {})
    page.driver.execute_cdp_cmd(
        "Network.emulateNetworkConditions", {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    )
    try:
        page.driver.get(file.as_uri())
        assert "step 5" in page.driver.find_element("css selector", "body").text
        assert page.driver.execute_script("return performance.getEntriesByType('resource').length") == 0
    finally:
        page.driver.execute_cdp_cmd(
            "Network.emulateNetworkConditions", {"offline": False, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        )


def to_run_with_capture(page: Page, served: Served, tmp_path: Path) -> str:
    """Goes to the page of a run that made a capture; the run."""
    capture = tmp_path.resolve() / "kept.leadline"
    shutil.copytree(Path(__file__).resolve().parents[2] / "testdata" / "capture" / "format1", capture)
    uid = recorded_capture(served, capture)
    wait_until(lambda: served.client(token=served.token_of("ann")).call("GET", f"/runs/{uid}").status == 200, "the run")
    page.go(f"/runs/{uid}")
    return uid


def test_the_report_of_a_capture_is_shown_without_rights_of_this_site(logged_in: Page, served: Served, tmp_path: Path) -> None:
    from selenium.common.exceptions import WebDriverException

    page = logged_in
    to_run_with_capture(page, served, tmp_path)
    page.click("report")
    wait_until(lambda: page.driver.find_elements("css selector", ".tiles"), "the report")
    with pytest.raises(WebDriverException, match="sandboxed"):
        page.driver.execute_script("return document.cookie")


def test_a_capture_is_explored_on_the_page_of_its_run(logged_in: Page, served: Served, tmp_path: Path) -> None:
    page = logged_in
    uid = to_run_with_capture(page, served, tmp_path)
    page.click("explore")
    wait_until(lambda: page.driver.find_elements("css selector", "body[data-ready]"), "the chart")
    assert page.find("#name").text == "kept.leadline" and page.find("#error").text == ""
    assert page.driver.find_elements("css selector", "#rows tbody tr")
    page.click("\u2039 Run")
    assert page.driver.current_url.endswith(f"/runs/{uid}")


def test_a_recorder_is_looked_into_and_a_window_of_it_is_opened(logged_in: Page, served: Served, tmp_path: Path) -> None:
    page = logged_in
    for number, second in enumerate((0, 60), 1):
        with begun_at(second):
            (tmp_path / str(number)).mkdir()
            as_piece(example(tmp_path / str(number)), tmp_path / "recorded", number, second)
    served.do("recorder", "register", "shop", "--project", "main", "--directory", str((tmp_path / "recorded").resolve()))
    page.go("/recorders")
    wait_until(lambda: page.driver.find_elements("css selector", "a[href='/recorders/shop']"), "the recorder in the list")
    page.click("shop")
    wait_until(lambda: page.driver.find_elements("css selector", "body[data-ready]"), "the chart")
    whole = page.driver.current_url
    assert "/recorders/shop/from/" in whole and page.find("#error").text == "" and page.find("#name").text == "recorded"
    page.go(urlsplit(whole).path + "?from=50&to=80")
    opens = "body[data-ready='?from=50&to=80'] #open-window:not([disabled])"
    wait_until(lambda: page.driver.find_elements("css selector", opens), "the window")
    page.find("#open-window").click()
    wait_until(lambda: "/recorders/shop/at/" in page.driver.current_url, "the page of the window")
    wait_until(lambda: page.driver.find_elements("css selector", "body[data-ready] #rows tbody tr"), "the ranking of the window")
    assert page.find("#error").text == "" and "on the host of the recorder" in page.find("#notes").text
    page.click("\u2039 Recorder")
    wait_until(lambda: page.driver.current_url == whole, "all of it again")
    wait_until(lambda: page.driver.find_elements("css selector", "body[data-ready]"), "its chart")
    page.click("\u2039 Recorders")
    wait_until(lambda: page.driver.current_url.endswith("/recorders"), "the list")


def recorded_capture(served: Served, capture: Path) -> str:
    recorder = Recorder(Place(served.book))
    recorder.begin("leadline", "take", ["leadline", "take"])
    recorder.artifact("capture", str(capture))
    recorder.end(0)
    return recorder.uid


def test_the_keyboard_is_enough(logged_in: Page) -> None:
    from selenium.webdriver.common.keys import Keys

    page = logged_in
    page.go("/runs")
    body = page.find("body")
    body.send_keys(Keys.TAB)
    assert page.driver.switch_to.active_element.text == "Skip to the content"
    body.send_keys("/")
    assert page.driver.switch_to.active_element.get_attribute("name") == "text"
    page.driver.switch_to.active_element.send_keys("steps", Keys.ENTER)
    wait_until(lambda: "text=steps" in page.driver.current_url, "the list")
    page.find("body").send_keys("j")
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    wait_until(lambda: "/runs/" in page.driver.current_url, "the run")


PATHS = (
    "/runs",
    "/runs/last",
    "/hosts",
    "/account",
    "/templates",
    "/schedules",
    "/recorders",
    "/compare",
    "/history",
    "/tokens",
    "/projects",
    "/users",
    "/audit",
    "/hooks",
    "/search",
)
CONTRAST = """
const parts = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map((x) => x / 255);
const linear = (x) => x <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
const light = (colour) => { const [r, g, b] = parts(colour).map(linear); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const behind = (e) => {
  for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor; if (!/, 0\\)$/.test(c)) return c; }
  return "rgb(255, 255, 255)";
};
const ratio = (e) => {
  const [a, b] = [light(getComputedStyle(e).color), light(behind(e))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};
const hasText = (e) => [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
return [...document.querySelectorAll("main *, header *, footer *")].filter((e) => hasText(e) && e.offsetParent && ratio(e) < 4.5)
  .map((e) => [ratio(e), `${e.tagName}.${e.className} ${e.textContent.trim().slice(0, 30)}`]);
"""


def of_runs(served: Served) -> list[str]:
    """Pages of single things: of each kind of run, of each kind of result, of a file, a host, a template, a project."""
    client = served.client(token=served.token_of("ann"))

    def newest(kind: str) -> str:
        return str(wait_until(lambda: client.call("GET", f"/runs?kind={kind}").json["runs"], kind)[0]["uid"])

    played, started, asked = newest("ansible"), newest("template"), newest("experiment")
    results = client.call("GET", f"/runs/{played}/results?parts=true").json["results"]
    alike = {(r["outcome"], r["part"], r["task_name"] == "Write a file"): r["n"] for r in results}
    template = client.call("GET", f"/runs/{started}").json["run"]["template"]
    paths = ["results", "results?host=web1&outcome=ignored", "hosts/web1/facts", "given/0", *(f"results/{n}" for n in alike.values())]
    assert len(paths) > 12
    return [
        *(f"/runs/{uid}" for uid in (played, started, asked)), *(f"/runs/{played}/{path}" for path in paths), f"/runs/{started}/evidence",
        f"/runs/{asked}/evidence", "/hosts/web1", f"/templates/{template}", "/days", "/projects/main", "/projects/main/variables",
        "/projects/main/secrets", f"/compare?one={played}&other={started}", "/history?metric=wall_s", "/search?text=step",
    ]  # fmt: skip


IN_MENU = """
const here = document.querySelector("nav [aria-current]")?.getBoundingClientRect();
return !here || (here.left >= 0 && here.right <= innerWidth);
"""


@pytest.mark.parametrize("width", [1366, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_and_can_be_read(logged_in: Page, served: Served, width: int, scheme: str) -> None:
    page, wrong = logged_in, []
    page.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 700}
    )
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    try:
        for path in (*PATHS, *of_runs(served)):
            page.go(path)
            if page.driver.find_elements("css selector", "section[role=alert]"):
                wrong.append((path, page.text()))
            if page.driver.execute_script("return document.documentElement.scrollWidth") > width:
                wrong.append((path, "is wider than the window"))
            if not page.driver.execute_script(IN_MENU):
                wrong.append((path, "is out of sight in the menu"))
            wrong += [(path, *found) for found in page.driver.execute_script(CONTRAST)]
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert wrong == []


def test_one_logs_out(logged_in: Page) -> None:
    page = logged_in
    page.go("/runs")
    page.click("Log out")
    page.find("#password")
    page.go("/runs")
    page.find("#password")


def test_the_server_had_nothing_to_complain_of(served: Served) -> None:
    assert served.complaints() == ""
