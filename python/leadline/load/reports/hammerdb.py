"""The log of HammerDB (its virtual users, and hdbxtprofile.log), by the format that its documentation shows: results and procedures."""

from __future__ import annotations

import re
from pathlib import Path

from leadline.errors import LeadlineError
from leadline.load.reports.report import BEGIN_NS, Report, number, text_of

# Since version 4 new orders stand first; before, transactions did.
_RESULT = re.compile(r"System achieved (\d+) NOPM (?:from|at) (\d+) (.+?) TPM")
_OLD = re.compile(r"System achieved (\d+) (.+?) TPM at (\d+) NOPM")
_MINUTES = re.compile(r"Timing test period of (\d+) in minutes")
_USERS = re.compile(r"(\d+) Active Virtual Users configured|(\d+) Virtual Users configured")
_QUERIES = re.compile(r"Completed (\d+) query set\(s\) in (\d+(?:\.\d+)?) seconds")
_GEOMETRIC = re.compile(r"Geometric mean of query times returning rows \((\d+)\) is ([\d.]+)")
_QUERY = re.compile(r"query (\d+) completed in ([\d.]+) seconds")
_COUNTER = re.compile(r"^(\d+) (\S+) tpm(?: @ (.*))?$")
_OF = re.compile(r">>>>> (?:SUMMARY OF (\d+) ACTIVE VIRTUAL USERS|VIRTUAL USER (\d+))")
_PROC = re.compile(r">>>>> PROC: (\S+)")
_VALUE = re.compile(r"(CALLS|MIN|AVG|MAX|TOTAL|P99|P95|P50|SD|RATIO): ([\d.]+)(ms|%)?")
_FAILED = re.compile(r"Error in Virtual User (\d+): (.*)|Vuser (\d+):FINISHED FAILED")
COLUMNS = {"P50": "p50_ns", "P99": "p99_ns", "MAX": "max_ns", "AVG": "mean_ns"}
MINUTE = 60.0


def read(file: Path) -> Report:
    """Raises LeadlineError for a file with no result, or with several: each run is a load of its own."""
    report, of, procedure = Report("HammerDB"), "", ""
    results: list[tuple[float, float]] = []
    minutes = 0.0
    for line in text_of(file).splitlines():
        if found := _RESULT.search(line):
            results.append((float(found[1]), float(found[2])))
        elif found := _OLD.search(line):
            results.append((float(found[3]), float(found[1])))
        elif found := _MINUTES.search(line):
            minutes = float(found[1])
        elif found := _OF.search(line):
            of = "summary" if found[1] else f"virtual user {found[2]}"
        elif found := _PROC.search(line):
            procedure = found[1]
        elif procedure and (values := _VALUE.findall(line)):
            _procedure(report, file, of, procedure, values)
        elif found := _COUNTER.match(line):
            report.figure(report.ended, "transaction counter", found[3] or "tpm", found[1], file, float(found[1]))
        else:
            _other(report, file, line)
    if len(results) > 1:
        hint = "each run is a load of its own: divide the log, and import each part"
        raise LeadlineError("invalid", f"the log has the results of {len(results)} runs", hint=hint, where=str(file))
    if not results and not report.statements and not report.reported:
        hint = 'the log of a timed run, with "System achieved ... NOPM", or hdbxtprofile.log'
        raise LeadlineError("invalid", "there is no result of HammerDB in the file", hint=hint, where=str(file))
    for new_orders, transactions in results:
        report.ended = BEGIN_NS + round(minutes * MINUTE * 1e9)
        report.figure(report.ended, "result", "NOPM", f"{new_orders:.0f}", file, new_orders)
        report.figure(report.ended, "result", "TPM", f"{transactions:.0f}", file, transactions)
        if minutes:
            report.second(report.ended, minutes * MINUTE, transactions * minutes)
        else:
            report.notes.append("the log does not say how long the run was timed (driver timed): rates are in load_reported alone")
        report.notes.append("a transaction is a commit or rollback that the server counted, of all sessions (TPM), and no result of TPC-C")
    return report


def _procedure(report: Report, file: Path, of: str, procedure: str, values: list[tuple[str, str, str]]) -> None:
    found = {name: float(text) for name, text, _ in values if number(text) is not None}
    for name, text, unit in values:
        report.figure(report.ended, f"{of}: {procedure}" if of else procedure, name, text + unit, file, number(text))
    if of != "summary":
        return
    row = next((row for row in report.statements if row["text"] == procedure), None)
    if row is None:
        row = {"ts": BEGIN_NS, "phase": 0, "script": "HammerDB", "command": len(report.statements) + 1, "text": procedure}
        row |= {"count": 0, "rows": 0, "failed": 0, "retried": 0}
        report.statements.append(row)
    row["count"] = int(found.get("CALLS", row["count"]))
    row |= {column: round(found[name] * 1e6) for name, column in COLUMNS.items() if name in found}


def _other(report: Report, file: Path, line: str) -> None:
    if found := _USERS.search(line):
        report.figure(report.ended, "options", "virtual users", found[1] or found[2], file, float(found[1] or found[2]))
    elif found := _QUERIES.search(line):
        report.figure(report.ended, "query set", f"seconds of {found[1]}", found[2], file, float(found[2]))
    elif found := _GEOMETRIC.search(line):
        report.figure(report.ended, "query set", f"geometric mean of {found[1]}", found[2], file, float(found[2]))
    elif found := _QUERY.search(line):
        report.figure(report.ended, "query", found[1], found[2], file, float(found[2]))
    elif found := _FAILED.search(line):
        said = (found[2] or "finished failed").strip()
        report.errors.append({"ts": BEGIN_NS, "phase": 0, "sqlstate": "script", "count": 1, "retried": 0, "message": said})
