"""Lines that programs write when they fail: which of them tell a reason, and which to quote."""

from __future__ import annotations

import re

from leadline.why.seen import Process

LONGEST = 300
# Words of lines that tell of a failure. In other languages than English nothing is found: the last line is then quoted as a fact.
_ERROR = re.compile(
    r"""\berr(?:or)?\b|\bfatal\b|\bfail(?:ed|ure)|\bcannot\b|\bcan't\b|\bcould\ not\b|\bcouldn't\b|\bunable\b|not\ found\b|\bno\ such\b
    |\bdenied\b|\brefused\b|\bmissing\b|\bundefined\b|\bunknown\b|\binvalid\b|\bunrecogni[sz]ed\b|exception\b|not\ permitted|\babort|\bpanic
    |\billegal\b|\bexpired\b|\btoo\ (?:many|long|old|short|large)\b|\bno\ space\b|\bmust\b|\bexpected\b|\busage:|\*\*\*|\bunsupported\b
    |not\ (?:allowed|supported|installed|a\ directory)|[A-Za-z]Error\b|timed\ out|\bbusy\b|unreachable|already\ (?:exists|in\ use|running)
    |\bunbound\b
    |\bis\ not\b|\bdoes\ not\b|\bkilled\b|\bmismatch|core\ dumped|\bno\ (?:rule|module|acceptable|matching|package)\b
    |has\ (?:wrong|invalid)\b""",
    re.I | re.X,
)
# Lines that only repeat that something failed, which was told before.
_SUMMARY = re.compile(
    r"""compilation\ terminated|aborting\ due|could\ not\ compile|returned\ \d+\ exit|returned\ (?:a\ )?non-zero|\bError\ \d+$
    |\bexit(?:ed)?\b|status\ \d|code\ \d+|see\ .*log|log\ of\ this\ run|\d+\ errors?\b|build\ (?:failed|stopped)
    |for\ more\ (?:info|details)|\bStop\.$
    |Errors?\ occurred|waiting\ for\ unfinished|run\ pip|previous\ errors|may\ have\ more\ information|^note:|Is\ the\ server\ running""",
    re.I | re.X,
)
# What a program says whose child, or whose first attempt, failed. Without such a word it has a reason of its own.
_CONSEQUENCE = re.compile(
    r"\bfail|\babort|could not|cannot|can't|couldn't|unable|giving up|\bexit|\bstopp|terminat|unsuccessful|did not (?:work|succeed)", re.I
)
# Lines that begin a message, and do not go on with one: "tool: ...", "ERROR: ...", "ValueError: ...".
_BEGINS = re.compile(r"^\S*(?:error|fatal|panic|err!|exception)\b|^\[?[\w./-]+\]?: ", re.I)
_WARNING = re.compile(r"^\W*(?:warn(?:ing)?|notice|info|debug)\b|\bwarning:|\[(?:warn(?:ing)?|info|notice)\]|\bWARN(?:ING)?\b", re.I)
_OF_SHELL = re.compile(r"^\S+: (?:line )?\d+: ")
_OF_COMPILER = re.compile(r":\d+:(?:\d+:)? (?:fatal )?error\b")
_TRACEBACK = "Traceback (most recent call last)"


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def is_error(line: str) -> bool:
    return _ERROR.search(line) is not None and not is_warning(line)


def is_summary(line: str) -> bool:
    return _SUMMARY.search(line) is not None


def is_consequence(line: str) -> bool:
    return is_summary(line) or _CONSEQUENCE.search(line) is not None


def is_warning(line: str) -> bool:
    return _WARNING.search(line) is not None


def is_of_shell(line: str) -> bool:
    """A shell reports the line of a script: "sh: 1: ..." or "./script: line 3: ..."."""
    return _OF_SHELL.search(line) is not None


def begins_message(line: str) -> bool:
    return _BEGINS.search(line) is not None


def errors_of(process: Process) -> list[str]:
    """The lines that tell of a failure; of a trace of calls only the last line."""
    lines = lines_of(process.said)
    if _TRACEBACK in process.said:
        lines = [line for line in lines if not line.startswith((" ", _TRACEBACK))]
    # By custom, a line that begins with the name of the program is a message of an error.
    own = (f"{process.name}: ", f"{process.program}: ")
    return [line for line in lines if is_error(line) or (line.startswith(own) and not is_warning(line))]


def headline(process: Process) -> str:
    """The line that tells why: the last one, if it does not only sum up what stands before; of compilers the first. "" if there is none.

    Some report to their standard output alone: then its last line, if that tells of an error.
    """
    lines = errors_of(process)
    if not lines and not process.said.strip():
        lines = [line for line in lines_of(process.printed)[-1:] if is_error(line)]
    if not lines:
        return ""
    first = process.first_error.rstrip() if process.first_error.strip() and _TRACEBACK not in process.said else ""
    if first and _OF_COMPILER.search(first):
        return first[:LONGEST]
    telling = [line for line in lines if not is_summary(line)]
    if is_summary(lines[-1]) and first and not is_summary(first):
        return first.strip()[:LONGEST]
    return (telling[-1] if telling else lines[0]).strip()[:LONGEST]


def last_line(process: Process) -> str:
    """What it wrote last, to its error output or else to its standard output."""
    lines = lines_of(process.said) or lines_of(process.printed)
    return lines[-1].strip()[:LONGEST] if lines else ""
