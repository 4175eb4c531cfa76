"""The pages: which operation each shows, and by which template. Every page has a twin, PATH.json, with the same values."""

from __future__ import annotations

import difflib
import json
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup, escape

from leadline import figures, units
from leadline.book.ansible.ingest import TOTALS
from leadline.book.ansible.query import text_of
from leadline.book.experiments.drawing import drawing
from leadline.book.experiments.text import in_pairs
from leadline.book.shown import visible, visible_lines
from leadline.errors import LeadlineError
from leadline.server.launch.survey import read_survey
from leadline.server.operation import Input, Operation
from leadline.server.read.playbooks import OUTCOMES
from leadline.server.read.runs import ENDED, numbers_of
from leadline.server.rights import Caller
from leadline.server.table import BY_NAME
from leadline.server.web import chart, forms
from leadline.server.web.address import link
from leadline.server.web.ansi import Colours
from leadline.server.web.live import in_parts
from leadline.server.web.site import Asked, Site, own_path
from leadline.version import version

Row = dict[str, Any]


@dataclass(frozen=True)
class Page:
    """operation: what it shows. beside: other operations whose answers the page needs, with their inputs. forms: operations that it offers:
    above the rows, or for each row, where `key` is the column with the row's own name and `key_input` the input that takes it."""

    path: str
    operation: str
    template: str
    title: str
    menu: str = ""
    beside: tuple[tuple[str, str, Mapping[str, Any]], ...] = ()
    forms: tuple[str, ...] = ()
    row_forms: tuple[str, ...] = ()
    key: str = ""
    key_input: str = ""
    site_only: bool = False
    about: str = ""


@dataclass
class Shown:
    page: Page
    data: Any
    given: Mapping[str, Any] = field(default_factory=dict)
    caller: Caller | None = None
    has_users: bool = False
    beside: Row = field(default_factory=dict)
    path: str = ""


PAGES = (
    Page("/runs", "run.list", "runs.html.j2", "Runs", "Runs"),
    Page(
        "/runs/{run}", "run.show", "run.html.j2", "Run",
        beside=(("log", "run.log", {"from": -(48 << 10)}), ("playbook", "run.playbook", {})),
    ),
    Page("/runs/{run}/given/{n}", "run.given", "given.html.j2", "File"),
    Page("/runs/{run}/evidence", "run.verify", "evidence.html.j2", "Evidence"),
    Page("/runs/{run}/results", "run.results", "results.html.j2", "Results"),
    Page("/runs/{run}/results/{n}", "run.result", "result.html.j2", "Result"),
    Page("/runs/{run}/hosts/{host}/facts", "run.facts", "facts.html.j2", "Facts"),
    Page("/days", "run.days", "rows.html.j2", "Runs by day", "Days", about="How many runs began on each day (UTC), and how they ended."),
    Page("/search", "run.search", "search.html.j2", "Search in output", "Search"),
    Page("/compare", "run.compare", "compare.html.j2", "Compare two runs", "Compare"),
    Page("/history", "template.history", "history.html.j2", "Figures over time", "Figures", beside=(("names", "template.metrics", {}),)),
    Page(
        "/templates", "template.list", "rows.html.j2", "Templates", "Templates", forms=("template.save",),
        about="What can be started, with which questions. Who may edit one can run any command as the user who runs this server.",
    ),
    Page(
        "/hosts", "run.hosts", "rows.html.j2", "Hosts", "Hosts",
        about="Hosts of the newest runs: how many were started there, in how many Ansible worked on it, how many of both failed.",
    ),
    Page("/hosts/{host}", "run.host", "host.html.j2", "Host"),
    Page("/templates/{template}", "template.show", "template.html.j2", "Template"),
    Page(
        "/schedules", "schedule.list", "rows.html.j2", "Schedules", "Schedules", key="uid", key_input="schedule",
        row_forms=("schedule.edit", "schedule.set", "schedule.delete"),
        about="What starts by the clock, with the next five times. A new one is made on the page of its template.",
    ),
    Page(
        "/hooks", "hook.list", "rows.html.j2", "Hooks", "Hooks", forms=("hook.start", "hook.tell", "hook.mail", "hook.after"),
        row_forms=("hook.delete",), key="uid", key_input="hook",
        about="Signed requests that start a template; and when a run has ended: an address is told, a mail sent, or a template started.",
    ),
    Page(
        "/recorders", "recorder.list", "rows.html.j2", "Recorders", "Recorders", forms=("recorder.register",),
        row_forms=("recorder.remove",), key="name", key_input="recorder",
        about="What leadline record has recorded, over time; any window of it can be opened. An administrator registers its directory.",
    ),
    Page("/projects/{project}/variables", "variables.list", "rows.html.j2", "Variables of", forms=("variables.set",),
         row_forms=("variables.delete",), key="group", key_input="group",
         about="Values that templates of the project share, and that everybody who sees it may see."),
    Page("/projects/{project}/secrets", "secret.list", "rows.html.j2", "Secrets of", forms=("secret.set", "secret.key"),
         row_forms=("secret.delete",), key="secret", key_input="secret"),
    Page(
        "/tokens", "token.list", "rows.html.j2", "Tokens", "Tokens", forms=("token.create",), row_forms=("token.revoke",), key="token",
        key_input="token", about="Programs log in with a token. It is shown once, when it is made.",
    ),
    Page(
        "/projects", "user.projects", "rows.html.j2", "Projects", "Projects", forms=("user.project", "user.role"),
        row_forms=("user.delete-project",), key="project", key_input="project",
        about="A role in a project covers all its templates and runs: viewer sees, runner starts, editor changes, admin gives roles.",
    ),
    Page("/projects/{project}", "user.members", "rows.html.j2", "Members of", row_forms=("user.role",), key="user", key_input="user"),
    Page(
        "/users", "user.list", "rows.html.j2", "Users", "Users", forms=("user.create",), key="user", key_input="user", site_only=True,
        row_forms=("user.disable", "user.password", "user.forget-codes", "user.delete"),
    ),
    Page("/account", "user.me", "account.html.j2", "Your account"),
    Page(
        "/audit", "user.audit", "rows.html.j2", "Audit", "Audit", site_only=True,
        about="Every change and every refused attempt, each chained to the one before.",
    ),
)  # fmt: skip
TIMES = {"started", "ended", "created", "expires", "used", "ts", "asked", "changed", "next_due", "sent", "due"}


def data(site: Site, page: Page, asked: Asked, given: Mapping[str, Any]) -> Shown:
    """Raises LeadlineError. A page that needs values it was not given shows its form alone."""
    operation = BY_NAME[page.operation]
    shown = Shown(page, None, given, site.caller(asked), site.has_users(), path=page.path)
    given = {name: value for name, value in given.items() if value != ""}
    if all(given.get(i.name) for i in operation.inputs if i.required):
        shown.data = site.perform(operation, asked, given)
    else:
        for name in given:
            if name not in {i.name for i in operation.inputs}:
                operation.read(given)
    for name, beside, more in page.beside:
        known = {i.name for i in BY_NAME[beside].inputs}
        if beside == "run.playbook" and shown.data["run"]["kind"] != "ansible":
            shown.beside[name] = None
        else:
            shown.beside[name] = site.perform(BY_NAME[beside], asked, {k: v for k, v in given.items() if k in known} | dict(more))
    return shown


def render(template: str, shown: Shown) -> str:
    operation = BY_NAME[shown.page.operation]
    rows = shown.data[operation.rows] if operation.rows and shown.data is not None else []
    return environment().get_template(template).render(
        page=shown.page, operation=operation, data=shown.data, given=shown.given, caller=shown.caller, has_users=shown.has_users, rows=rows,
        beside=shown.beside, menu=_menu(shown.caller), operations=BY_NAME, title=shown.page.title,
    )  # fmt: skip


def _menu(caller: Caller | None) -> list[Page]:
    return [page for page in PAGES if page.menu and (not page.site_only or (caller is not None and caller.is_site_admin))]


def error(site: Site | None, asked: Asked | None, e: LeadlineError) -> str:
    """site and asked: to show the menu of who asks; without, there is none."""
    try:
        caller = site.caller(asked) if site is not None and asked is not None else None
    except LeadlineError:
        caller = None
    title = {"not_found": "Not found", "fault": "leadline failed", "storage": "Not now"}.get(e.kind, "Not done")
    return (
        environment()
        .get_template("error.html.j2")
        .render(error=e, caller=caller, menu=_menu(caller) if caller else [], title=title, has_users=True, page=None)
    )


def again(site: Site, asked: Asked, operation: Operation, fields: Mapping[str, str], on: str, e: LeadlineError) -> str:
    """The form with what was typed and what is wrong with it. Only for what our own page sent: another could fill it in for the reader."""
    try:
        caller = site.caller(asked)
    except LeadlineError:  # the book cannot be read
        return error(site, None, e)
    names = {i.name: i for i in operation.inputs}
    fixed = [name for name in fields.get(FIXED, "").split(",") if name in fields and name in names and names[name].kind != "secret"]
    survey = _survey_of(site, asked, fields) if "inputs" in names and any(name.startswith("input.") for name in fields) else None
    inputs = (*operation.inputs, *(questions(survey) if survey else ()))
    return environment().get_template("form.html.j2").render(
        operation=operation, then=on, known={name: fields[name] for name in fixed}, values=forms.typed(inputs, fields), survey=survey,
        error=e, caller=caller, menu=_menu(caller), title=operation.summary.split(".")[0], has_users=True, page=None, path=None,
    )  # fmt: skip


def asked_again(site: Site, asked: Asked, of: Page, given: Mapping[str, str], e: LeadlineError) -> str:
    """The same of a page that is asked for by a form, such as the filters of a list."""
    operation, caller = BY_NAME[of.operation], site.caller(asked)
    return environment().get_template("form.html.j2").render(
        operation=operation, then="", known={}, values=forms.typed(operation.inputs, given), survey=None, error=e, caller=caller,
        menu=_menu(caller), title=of.title, has_users=True, page=of, path=of.path,
    )  # fmt: skip


def _survey_of(site: Site, asked: Asked, fields: Mapping[str, str]) -> Row | None:
    try:
        found: Row = site.perform(BY_NAME["template.show"], asked, {"template": fields.get("template", "")})["template"]["survey"]
    except LeadlineError:
        return None
    return found


FIXED = ".fixed"  # field of a form: names of the inputs that its reader does not see
PREFILLED = ("schedule.edit", "user.role")  # forms of a row that begin with what it has now
SHOWN_ONCE = {"token.create": ("token.html.j2", "New token"), "user.codes": ("codes.html.j2", "One-time codes")}


def once(site: Site, asked: Asked, operation: Operation, value: Row) -> str:
    """What an operation gave that nobody is shown again."""
    caller = site.caller(asked)
    template, title = SHOWN_ONCE[operation.name]
    return (
        environment()
        .get_template(template)
        .render(value=value, caller=caller, menu=_menu(caller), title=title, has_users=True, page=None, operations=BY_NAME)
    )


def login_page(on: str, provider: str = "", e: LeadlineError | None = None, account: str = "") -> str:
    """provider: the name of one by which users may log in, too. account: what was typed."""
    return (
        environment()
        .get_template("login.html.j2")
        .render(next=on, provider=provider, error=e, account=account, caller=None, menu=[], title="Log in", has_users=True, page=None)
    )


def once_page(key: str, e: LeadlineError | None = None) -> str:
    return (
        environment()
        .get_template("once.html.j2")
        .render(key=key, error=e, caller=None, menu=[], title="Log in", has_users=True, page=None)
    )


def filled(path: str, value: Any) -> str:
    """The path with {name} replaced by what the operation answered; of this site, also where that is empty."""
    for name, text in value.items() if isinstance(value, dict) else ():
        path = path.replace("{" + name + "}", quote(str(text), safe=""))
    return own_path(path)


def query(values: Mapping[str, Any], **more: Any) -> str:
    return urlencode({name: value for name, value in (dict(values) | more).items() if value not in (None, "")})


# --- what templates use


@cache
def environment() -> jinja2.Environment:
    out = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True, finalize=_plain,
    )  # fmt: skip
    out.filters |= {
        "moment": moment, "took": units.duration, "cell": cell, "words": shlex.join, "figure": figure, "quantity": figures.quantity,
        "size": units.sized,
        "pretty": lambda v: json.dumps(v, ensure_ascii=False, indent=2), "log": log, "ended": ended,
    }  # fmt: skip
    out.filters["diff"] = diff
    out.globals |= {"TOTALS": TOTALS, "OUTCOMES": OUTCOMES, "PREFILLED": PREFILLED, "FIXED": FIXED}
    out.globals |= {
        "version": version(),
        "chart": chart.of_points,
        "ENDED": ENDED,
        "short": lambda uid: str(uid)[:5],
        "query": query,
        "link": link,
        "asks": lambda asked: any(one.required and one.default is None for one in read_survey(asked).values()),
        "SHAPES": forms.SHAPES,
        "lines_of": forms.lines_of,
        "rows_of": forms.rows_of,
        "part_of": forms.part_of,
        "named": lambda part, name: replace(part, name=name),
        "questions": questions,
        "heading": heading,
        "ratios": lambda found: Markup(drawing(found)),
        "numbers_of": numbers_of,
        "text_of": text_of,
        "in_pairs": in_pairs,
    }
    return out


def _plain(value: Any) -> Any:
    """What was recorded may hold characters that turn a line around or are not seen."""
    if value is None:
        return ""
    return visible_lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def moment(us: int | None) -> Markup:
    if not us:  # also of what was always there, as the project main
        return Markup("")
    try:
        at = datetime.fromtimestamp(us / 1e6, UTC)
    except (ValueError, OverflowError, OSError):
        return Markup(escape(us))
    text = at.astimezone().strftime("%Y-%m-%d %H:%M:%S")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(at.isoformat(), ago(us), text)


def ago(us: int) -> str:
    s = time.time() - us / 1e6
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if abs(s) >= size:
            return f"{abs(s) / size:.0f} {name} {'ago' if s > 0 else 'from now'}"
    return "now"


def figure(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if abs(value) < 1e6 else f"{value:,.0f}"


def cell(value: Any, column: str) -> Any:
    if column in TIMES and isinstance(value, int):
        return moment(value)
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{k}: {str(v).lower() if isinstance(v, bool) else v}" for k, v in value.items())
    if isinstance(value, list):
        times = column == "next"
        return Markup("<br>").join(moment(v) for v in value) if times else ", ".join(map(str, value))
    return figure(value) if isinstance(value, int | float) else str(value)


def heading(column: str) -> str:
    return {"uid": "Id", "detail_json": "Detail", "ts": "Time", "played": "Of Ansible"}.get(column) or column.replace("_", " ").capitalize()


def questions(survey: Row) -> list[Input]:
    """As fields of a form, whose names say that they are of the survey."""
    return [replace(question, name=f"input.{name}") for name, question in read_survey(survey).items()]


def ended(run: Row) -> str:
    if run["signal"] is not None:
        return f"{run['status']} (signal {run['signal']})"
    return f"{run['status']} ({run['rc']})" if run["status"] in ("failed", "cancelled") and run["rc"] else str(run["status"])


def diff(of: Any) -> Markup:
    """What a module changed: before and after, or a text that is a diff already, with its lines coloured."""
    lines = list[str]()
    for one in of if isinstance(of, list) else [of]:
        if not isinstance(one, dict):
            lines += str(one).splitlines()
        elif "prepared" in one:
            lines += str(one["prepared"]).splitlines()
        else:
            before, after = (_lines(one.get(name, "")) for name in ("before", "after"))
            first, second = (str(one.get(f"{name}_header") or name) for name in ("before", "after"))
            lines += difflib.unified_diff(before, after, first, second, lineterm="")
    classes = {"+": "add", "-": "del", "@": "hunk"}
    return Markup("\n").join(Markup('<span class="{}">{}</span>').format(classes.get(line[:1], ""), visible(line)) for line in lines)


def _lines(value: Any) -> list[str]:
    return (value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True)).splitlines()


def log(of: Row) -> Markup:
    """A page of output as HTML: coloured, with all text escaped."""
    import base64

    piece = of["text"].encode() if "text" in of else base64.b64decode(of["base64"])
    lines = in_parts(piece, Colours())
    return Markup("\n").join(
        Markup("").join(Markup('<span class="{}">{}</span>').format(c, t) if c else escape(t) for c, t in parts) for parts in lines
    )
