"""What `alter resolve` planned and did, for people."""

from __future__ import annotations

import textwrap
from typing import Any

from leadline.figures import count, one_line
from leadline.files.alter.resolve import Outcome
from leadline.output import to_table, width_here
from leadline.units import MB

NOTHING = "the table has no partitions that store rows"


def _pending(listed: list[dict[str, Any]]) -> str:
    return to_table(["reason", "rows", "pages", "bytes"], [[row[k] for k in ("reason", "rows", "pages", "bytes")] for row in listed])


def _notes(notes: list[str]) -> list[str]:
    return [textwrap.fill(one_line(f"note: {note}"), width_here(), subsequent_indent="  ") for note in notes]


def _megabytes(size: float) -> str:
    return f"{size / MB:,.1f} MB" if size >= MB else f"{size / 1024:,.0f} kB"


def plan(planned: dict[str, Any]) -> str:
    if not planned["rows"]:
        return "\n".join([f"{one_line(planned['relation'])}: no row is in an old form", *_notes(planned["notes"])])
    lines = [f"{one_line(planned['relation'])}: nothing was changed", _pending(planned["pending"]), ""]
    rows, pages, transactions = (count(planned[f"{thing}s"], thing) for thing in ("row", "page", "transaction"))
    lines.append(f"{rows} on {pages}, in at least {transactions};")
    lines.append(f"about {_megabytes(planned['wal_bytes_about'])} of WAL (estimated); each transaction runs")
    return "\n".join([*lines, textwrap.indent(textwrap.fill(planned["statement"], width_here() - 2), "  "), "", *_notes(planned["notes"])])


def outcome(done: Outcome) -> str:
    if not done.rows_before:
        return "\n".join([f"{one_line(done.relation)}: no row is in an old form", *_notes(done.notes)])
    left = "no row is left in an old form"
    if done.rows_remaining:
        left = f"{count(done.rows_remaining, 'row')} {'is' if done.rows_remaining == 1 else 'are'} left"
    proof = "verified in the files after a checkpoint" if done.is_proven else "not proven"
    ended = "interrupted: " if done.is_interrupted else ""
    reasons = {row["reason"]: row for row in done.before}
    after = {row["reason"]: row["rows"] for row in done.after}
    rows = [[reason, row["rows"], after.get(reason, 0), row["pages"], row["bytes"]] for reason, row in reasons.items()]
    hot = "not known: track_counts is off"
    if done.rows_hot is not None:
        hot = f"{done.rows_hot / max(done.rows_rewritten, 1):.0%} (HOT)"
    in_all = f"{count(done.transactions, 'transaction')}, {count(done.rounds, 'round')}, {done.seconds:,.1f} s"
    facts = [
        ["rows rewritten", f"{done.rows_rewritten:,} in {in_all}"],
        ["stayed on their page", hot],
        ["WAL", f"{_megabytes(done.wal_bytes)} written by the whole server during the run"],
        ["longest transaction", f"{done.longest_transaction_ms:,.1f} ms: an upper limit for the wait of any other session"],
        ["longest wait seen", f"{done.longest_wait_ms:,.1f} ms, in {done.waits:,} waits"],
        ["size with indexes", f"{_megabytes(done.bytes_before)} before, {_megabytes(done.bytes_after)} after"],
    ]
    lines = [f"{one_line(done.relation)}: {ended}{left}", f"({proof})", to_table(["reason", "rows", "left", "pages", "bytes"], rows), ""]
    lines += [f"{name:<21} {value}" for name, value in facts]
    return "\n".join([*lines, *_notes(done.notes)])
