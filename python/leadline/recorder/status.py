"""What a recorder's directory has: from when to when, in which pieces, with which gaps; and whether its recorder runs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from leadline.errors import LeadlineError
from leadline.recorder.asked import REQUEST
from leadline.recorder.detail import PLACE
from leadline.recorder.detail import lines as detail_lines
from leadline.recorder.killed import said_of_killed
from leadline.recorder.moments import as_utc
from leadline.recorder.pieces import MAKING, NAME, REMOVING, Piece, Pieces, gaps, used_bytes
from leadline.recorder.state import COARSER_LOCK, EVENTS, LOCK, STATE, WATCHED, State, read_state, servers_below
from leadline.recorder.unusual import BASELINE
from leadline.units import sized

MOST = 10  # gaps that are listed


def status_of_all(directory: Path) -> dict[str, Any]:
    """As `leadline record --status --json` prints it: of one server, or of each in `servers`. Raises LeadlineError."""
    if below := servers_below(directory):
        return {"directory": str(directory), "servers": [status(of) for of in below]}
    return status(directory)


def status(directory: Path) -> dict[str, Any]:
    """Of the recorder of one server. Raises LeadlineError."""
    if not directory.is_dir():
        raise LeadlineError("not_found", "no such directory", hint="give the directory of leadline record --to", where=str(directory))
    damaged: dict[str, Any] | None = None
    try:
        state = read_state(directory)
    except LeadlineError as e:
        if e.kind != "invalid":
            raise
        state, damaged = None, dict(e.as_dict())
    found = Pieces(directory)
    pieces = found.read()
    if state is None and damaged is None and not pieces:
        raise LeadlineError(
            "not_found", "nothing was recorded here", hint="record into it with leadline record --to DIR", where=str(directory)
        )
    state = state or State()
    runs = state.runs(directory)
    running = state.piece if runs else ""
    between = gaps(pieces)
    switches = [gap.seconds for gap in between if gap.switch]
    return {
        "directory": str(directory),
        "runs": runs,
        "doing": state.doing if runs else "killed" if state.doing != "ended" else "ended",
        "since": as_utc(state.since) if state.since else None,
        "process": state.process or None,
        "server": state.server or None,
        "settings": state.settings or None,
        "from": as_utc(pieces[0].wall_from) if pieces else None,
        "to": as_utc(max(piece.wall_to for piece in pieces)) if pieces else None,
        "bytes": used_bytes(directory) - used_bytes(directory / PLACE),
        "pieces": [_piece(piece, running) for piece in pieces],
        "switches": {"count": len(switches), "longest_s": round(max(switches, default=0.0), 3), "sum_s": round(sum(switches), 3)},
        "gaps": [{"from": as_utc(gap.wall_from), "seconds": round(gap.seconds, 3), "why": gap.why} for gap in between if not gap.switch],
        "never_recorded": "" if runs else said_of_killed(state, directory),
        "removed": state.removed or None,
        "levels": _levels(pieces),
        "coarser": state.coarser or None,
        "findings": _findings(state),
        "unusual": state.unusual or None,
        "detail": _detail(state, directory),
        "age_held_s": round(state.held_s),
        "last_error": state.last_error,
        "state_error": damaged,
        "others": others(directory),
    }


def others(directory: Path) -> list[str]:
    """What in the directory is not of the recorder. It is left alone, and does not count for the limits."""
    own = {STATE, STATE + ".tmp", LOCK, COARSER_LOCK, EVENTS, EVENTS + ".1", WATCHED, PLACE, BASELINE, BASELINE + ".tmp"}
    with os.scandir(directory) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.name not in own
            and not entry.name.startswith(REQUEST)
            and not (NAME.fullmatch(entry.name.removesuffix(REMOVING).removesuffix(MAKING)) and entry.is_dir(follow_symlinks=False))
        )


def as_text(found: dict[str, Any]) -> str:
    """The same for people."""
    if "servers" in found:
        return "\n".join(map(as_text, found["servers"]))
    pieces, settings = found["pieces"], found["settings"] or {}
    pid = (found["process"] or {}).get("pid")
    lines = [f"{found['directory']}: {_doing(found, pid)}"]
    if found["server"]:
        lines.append(f"  server    {found['server'].get('name', '')}")
    limit = f" of at most {sized(settings['max_bytes'])}" if "max_bytes" in settings else ""
    lines.append(f"  holds     {found['from'] or 'nothing'}" + (f" to {found['to']}" if pieces else ""))
    lines.append(f"  pieces    {len(pieces)}, {sized(found['bytes'])}{limit}" + _ended(pieces))
    if (switches := found["switches"])["count"]:
        lines.append(
            f"  between   {switches['count']} times from one piece to the next: {switches['sum_s']:.1f} s not seen, "
            f"{switches['longest_s']:.2f} s at most"
        )
    if len(found["levels"]) > 1 or any(level["span_s"] for level in found["levels"]):
        for level in found["levels"]:
            of = f"{level['from']} to {level['to']}, {level['pieces']} pieces, {sized(level['bytes'])}"
            lines.append(f"  level     {_span(level['span_s'])}: {of}")
    for span, made in (found["coarser"] or {}).items():
        failed = f"; {made['failed']} failed" if made.get("failed") else ""
        failed += f"; {made['overtaken']} times a limit removed the pieces meanwhile" if made.get("overtaken") else ""
        early = f" ({made['early']} before their age, for room)" if made.get("early") else ""
        shrunk = f"{sized(made['bytes_before'])} became {sized(made['bytes_after'])}"
        lines.append(
            f"  coarser   one row each {span}: {made.get('made', 0)} pieces made of {made.get('of', 0)}{early}, {shrunk}, "
            f"{made['cpu_s']:.1f} s of CPU{failed}"
        )
    for gap in found["gaps"][-MOST:]:
        lines.append(f"  gap       {gap['from']}: {gap['seconds']:.1f} s were not seen, {gap['why']}")
    if len(found["gaps"]) > MOST:
        lines.append(f"            {len(found['gaps']) - MOST} earlier ones: --json has them")
    if found["never_recorded"]:
        lines.append(f"  killed    {found['never_recorded']}")
    lines += _findings_lines(found["findings"])
    lines += detail_lines(found["detail"] or {}, settings.get("detail", {}))
    if removed := found["removed"]:
        lines.append(
            f"  removed   {removed['pieces']} pieces, {sized(removed['bytes'])}; the last, {removed['last']}, by its {removed['why']}"
        )
    if found["age_held_s"]:
        lines.append(f"  clock     in doubt: for {found['age_held_s'] / 3600:.0f} h no piece is removed by its age")
    if error := found["last_error"]:
        detail = f" ({error['detail']})" if error.get("detail") else ""
        lines.append(f"  error     {error.get('at', '')}: {error.get('message', '')}{detail}")
    if damaged := found["state_error"]:
        lines.append(f"  state     {damaged['message']}; a new one is written at the next start")
    if found["others"]:
        lines.append(f"  others    not of the recorder, left alone: {', '.join(found['others'][:MOST])}")
    return "\n".join(lines)


def _levels(pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """What there is of each level, the coarsest first."""
    found = []
    for span_s in sorted({piece.span_s for piece in pieces}, reverse=True):
        of = [piece for piece in pieces if piece.span_s == span_s]
        found.append({
            "span_s": span_s, "from": as_utc(min(p.wall_from for p in of)), "to": as_utc(max(p.wall_to for p in of)), "pieces": len(of),
            "bytes": sum(piece.bytes for piece in of), "hours": round(sum(piece.wall_to - piece.wall_from for piece in of) / 3.6e12, 3),
        })  # fmt: skip
    return found


def _findings(state: State) -> dict[str, Any] | None:
    """What was evaluated, what is open, and the last events."""
    of = state.findings
    if not of:
        return None
    counts = {name: of.get(name, 0) for name in ("evaluated", "skipped", "failed", "untold", "cpu_s", "longest_s")}
    opened = [
        {"id": key.partition(" ")[0], "subject": key.partition(" ")[2], "since": as_utc(one["since"]), "severity": one["severity"]}
        for key, one in of.get("open", {}).items()
    ]
    return counts | {"last_error": of.get("last_error"), "open": opened, "events": of.get("events", [])}


def _detail(state: State, directory: Path) -> dict[str, Any] | None:
    """What was taken in detail, and why."""
    if not state.detail.get("begun"):
        return None
    shown = {key: state.detail.get(key, 0) for key in ("begun", "failed", "over_budget", "removed", "cpu_s")}
    return shown | {"taken": state.detail.get("taken", []), "bytes": used_bytes(directory / PLACE)}


def _findings_lines(of: dict[str, Any] | None) -> list[str]:
    if of is None:
        return []
    rest = "".join(f", {of[name]} {name}" for name in ("skipped", "failed") if of[name])
    each = f", {of['cpu_s'] / of['evaluated']:.1f} s of CPU each" if of["evaluated"] else ""
    lines = [f"  findings  evaluated {of['evaluated']} times{rest}{each}; {len(of['open'])} open"]
    for event in of["events"][-MOST:]:
        if "measured" in event:
            lines.append(f"  {event['change']:<9} {event['at']}: {event['id']} {event['subject']}: {event['statement']}")
            lines.append(f"            detail: {event['capture'] or 'off'}")
            continue
        cost = "" if event["cost_s"] is None else f", {event['cost_s']:.1f} s in {event['window_s']:.0f} s"
        lines.append(f"  {event['change']:<9} {event['at']}: {event['id']} {event['subject']} ({event['severity']}{cost})")
    if of["untold"]:
        lines.append(f"            {of['untold']} more began than are told at once")
    return lines


def _span(span_s: int) -> str:
    return f"coarse, one row each {span_s} s" if span_s else "every pass"


def _doing(found: dict[str, Any], pid: int | None) -> str:
    since = f" since {found['since']}" if found["since"] else ""
    words = {
        "starting": f"running, pid {pid}, about to record{since}",
        "recording": f"recording{since}, pid {pid}",
        "waiting": f"running, pid {pid}, but waits for the server{since}",
        "full": f"running, pid {pid}, but writes nothing for lack of room{since}",
        "killed": "not running: its recorder was killed",
        "ended": f"not running{since}" if found["since"] else "not running",
    }
    return words.get(found["doing"], str(found["doing"]))


def _ended(pieces: Sequence[dict[str, Any]]) -> str:
    odd = [status for piece in pieces if (status := piece["status"]) not in ("complete", "recording")]
    return "".join(f"; {odd.count(status)} {status}" for status in dict.fromkeys(odd))


def _piece(piece: Piece, running: str) -> dict[str, Any]:
    return {
        "name": piece.name, "from": as_utc(piece.wall_from), "to": as_utc(piece.wall_to), "bytes": piece.bytes,
        "span_s": piece.span_s or None,
        "status": "recording" if piece.name == running and piece.status == "interrupted" else piece.status,
    }  # fmt: skip
