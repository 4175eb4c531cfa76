"""What the view of every capture has: what it is of, what was found, what was not measured, and what it cost."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from leadline.capture.manifest import TIERS, Manifest
from leadline.engines import subjects
from leadline.figures import count, one_line, seconds
from leadline.output import width_here
from leadline.units import bytes_of, sized, whole_size
from leadline.views import where
from leadline.views.sections import Context, Section, Tile
from leadline.views.text import FINDING_FIGURES, finding_line, findings_room, section, wrapped

MOST_FINDINGS = 12
BESIDE = ("host", "process", "load")  # targets that are watched, of no engine


def is_watched(kind: str) -> bool:
    """A target that ran while it was looked at; of others the tables are what a reader wants next."""
    return kind in BESIDE or (kind in subjects() and subjects()[kind].watched)


def title(of: Context) -> str:
    """The heading of the report, by what the capture is evidence of."""
    target = of.capture.manifest.target
    if target.kind in subjects():
        return subjects()[target.kind].title(target)
    if target.kind == "host":
        return f"What kept host {of.capture.manifest.host.name} busy"
    if target.kind == "load":
        return f"How the server answered a {target.name}"
    return f"Where the time of {target.name} went" if target.kind == "process" else f"Evidence of {target.name or target.kind}"


def _subject(m: Manifest) -> list[tuple[str, str]]:
    if m.target.kind in subjects():
        return subjects()[m.target.kind].facts(m.target)
    cpus = f", {m.target.cpu_count} CPUs" if m.target.cpu_count else ""
    return [("host", f"{m.host.name}, Linux {m.host.kernel}{cpus}") if m.target.kind == "host" else (m.target.kind, m.target.name)]


def facts(of: Context) -> list[tuple[str, str]]:
    """(label, text) of the first lines: what was looked at, when, how."""
    m = of.capture.manifest
    target, sessions = m.target, m.probe("sessions")
    found = _subject(m)
    if not is_watched(target.kind):
        rows = sorted(m.tables.items())
        found.append(("tables", ", ".join(f"{name} {about.get('rows', 0):,}" for name, about in rows) or "none"))
    clock = m.clock
    if clock.began is not None and of.window.window_s:
        found.append(("window", f"from {clock.began:%Y-%m-%d %H:%M:%S} UTC, {seconds(of.window.window_s)} s"))
    elif of.window.window_s:
        found.append(("window", f"{seconds(of.window.window_s)} s"))
    if sessions.looked and sessions.rate_hz:
        missed = f"{of.window.missed:,} missed ({seconds(of.window.unknown_s)} s unknown)" if of.window.missed else "none missed"
        tier = TIERS.get(sessions.tier or "", sessions.tier or "")
        coarse = f"; coarse, one row each {clock.span_s} s" if clock.span_s is not None else ""
        found.append(("sampling", f"{tier} at {sessions.rate_hz:g} Hz: {of.window.ticks:,} passes taken, {missed}{coarse}"))
    elif (host := m.probe("host")).looked and host.rate_hz:
        found.append(("sampling", f"{TIERS.get(host.tier or '', host.tier or '')} at {host.rate_hz:g} Hz"))
    if unseen := of.evaluation.unseen:
        found.append(("not seen", unseen))
    if (kernel := m.probe("kernel")).looked:
        lost = kernel.loss.get("records_lost", 0)
        by = TIERS.get(kernel.tier or "", kernel.tier or "")
        found.append(("trace", f"{by}: {kernel.loss.get('records', 0):,} events of threads, {f'{lost:,} lost' if lost else 'none lost'}"))
    return found


def header(of: Context) -> Iterator[Text]:
    """The first lines on the terminal."""
    for label, text in facts(of):
        style = "yellow" if label == "not seen" else ""
        first, *more = textwrap.wrap(one_line(text), max(width_here() - 10, 20), break_long_words=False, break_on_hyphens=False) or [""]
        yield Text.assemble((f"{label:<10}", "dim"), (first, style))
        yield from (Text(" " * 10 + line, style=style) for line in more)
    if of.capture.interrupted:
        yield Text("This capture was interrupted: it shows what was written until then.", style="yellow")
    error = of.capture.manifest.error
    if error:
        yield from wrapped(f"It ended early: {error.get('message', '')}", "yellow")


def _findings(of: Context, _: Any) -> Iterator[Text]:
    evaluation = of.evaluation
    found = len(evaluation.findings)
    first = evaluation.findings[:MOST_FINDINGS]
    room = findings_room(first)
    yield from section(f"Findings: {found or 'none'}", FINDING_FIGURES if found else "", room + len(FINDING_FIGURES))
    for finding in first:
        yield finding_line(finding, room)
    if found > MOST_FINDINGS:
        yield Text(f"{found - MOST_FINDINGS} more: leadline findings {shlex.quote(str(of.capture.path))}", style="dim")


def _finding_tiles(of: Context, _: Any) -> list[Tile]:
    found = of.evaluation.findings
    levels = [(level, sum(f.severity == level for f in found)) for level in ("critical", "high", "medium", "low", "info")]
    silent = f"{count(len(of.evaluation.clean), 'rule')} found nothing"
    note = ", ".join(f"{number} {level}" for level, number in levels if number) or silent
    return [Tile("Findings", str(len(found)), note)]


def _not_measured(of: Context, missing: list[where.NotMeasured]) -> Iterator[Text]:
    if missing or of.evaluation.not_evaluated:
        yield from section("Not measured")
    for item in missing:
        yield from wrapped(f"{item.what}: {item.why}" if item.why else item.what)
        if item.hint:
            yield from wrapped(f"  {item.hint}", "dim")
    if of.evaluation.not_evaluated:
        names = ", ".join(name for name, _ in of.evaluation.not_evaluated)
        yield from wrapped(f"findings not evaluated (run leadline findings --all to see why): {names}")
    if parts := cost_parts(of.capture.manifest):
        yield Text("")
        yield Text.assemble(("leadline itself used ", "dim"), ", ".join(parts))


def cost_parts(m: Manifest) -> list[str]:
    """What leadline itself used: CPU and bytes; none where it was not recorded."""
    cost, parts = m.cost, []
    if not is_watched(m.target.kind) and cost.cpu_s is not None:
        parts.append(f"{seconds(cost.cpu_s)} s of CPU")
    elif cost.cpu_percent_of_core is not None:
        in_seconds = f" ({seconds(cost.cpu_s)} s)" if cost.cpu_s is not None else ""
        parts.append(f"{cost.cpu_percent_of_core:.2f}% of one CPU{in_seconds}")
    if cost.bytes_written is not None:
        parts.append(f"{sized(cost.bytes_written)} written")
    return parts


def _target(of: Context) -> dict[str, Any]:
    capture = of.capture
    return {
        "settings": _settings(of),
        "facts": [(row["name"], _fact(row["name"], row["value"])) for row in capture.rows("from host_fact order by name")],
        "mounts": capture.rows("select * from mount where holds <> '' order by mount_point"),
        "devices": capture.rows("select * from block_device order by name"),
    }


def _fact(name: str, value: str) -> str:
    """Bytes for people; other values as the kernel prints them."""
    return sized(int(value)) if name and name.endswith("_bytes") and value and value.isdigit() else value


def _settings(of: Context) -> list[dict[str, Any]]:
    """Settings that are not the built-in default. What leadline's own connection set for itself is left out."""
    rows = of.capture.rows(
        """
        select * from setting
        where source not in ('default', 'override', 'client', 'session') and (setting is distinct from boot_val or pending_restart)
        order by name
        """
    )
    return [row | {"value": setting(row["setting"], row["unit"]), "default": setting(row["boot_val"], row["unit"])} for row in rows]


def setting(value: str, unit: str) -> str:
    """16384 in units of 8kB is 128 MB; a value that is no number, or means off, stays as it is."""
    match = re.fullmatch(r"(\d*)(B|kB|MB|GB)", unit or "")
    if not match or not value.isdigit():
        return f"{value} {unit}".strip() if value.isdigit() else value
    return whole_size(int(value) * bytes_of(f"{match[1] or 1}{match[2]}"))


FINDINGS = Section(
    "findings",
    "Findings",
    (),
    lambda of: [f.as_dict() for f in of.evaluation.findings],
    _findings,
    "findings.html.j2",
    tiles=_finding_tiles,
    applies=lambda of: bool(of.evaluation.findings or of.evaluation.clean or of.evaluation.not_evaluated),
)
NOT_MEASURED = Section(
    "not_measured", "Not measured", (), lambda of: where.not_measured(of.capture), _not_measured, "not_measured.html.j2"
)
TARGET = Section("target_facts", "Server and host", ("host_fact",), _target, html="target.html.j2", in_text=False, in_json=False)
