"""A capture on the terminal: where the time went, top findings, who waits for whom, and what was not measured.

Plain text of 80 columns first; colour and bars in the class colours only where the console has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Console
from rich.text import Text

from leadline.capture.reader import Capture
from leadline.figures import count, fit, one_line, percent, quantity, seconds
from leadline.findings import Evaluation, Finding
from leadline.views import where
from leadline.views.lock_tree import LockTree, Waiter, count_roots, lock_trees
from leadline.views.spenders import Spender, hot_blocks, objects, sessions, statements
from leadline.views.wait_classes import wait_class
from leadline.views.where import Window

WIDTH = 80
BAR = 22
SEVERITY_STYLES = {"critical": "bold red", "high": "red", "medium": "yellow", "low": "cyan", "info": "dim"}
MOST_EVENTS = 4
MOST_FINDINGS = 12
MOST_WAITERS = 8
SMALLEST_CHAIN = 0.05  # of the seconds lost in the worst chain; smaller ones are only counted


def print_capture(capture: Capture, evaluation: Evaluation, console: Console) -> None:
    """Prints the whole view. console: made with width WIDTH by the caller, who knows the stream."""
    of = where.window(capture)
    for line in lines(capture, evaluation, of):
        console.print(line, no_wrap=True, crop=False, overflow="ignore", soft_wrap=True)


def lines(capture: Capture, evaluation: Evaluation, of: Window) -> Iterator[Text]:
    """The view line by line."""
    if not capture.sampled:
        yield from _made_from_files(capture)
        yield from _ended(capture)
        yield from _findings(evaluation)
        return
    yield from _header(capture, of)
    yield from _ended(capture)
    if not of.ticks:
        yield Text("no passes were recorded: nothing can be said about time")
    else:
        yield from _classes(capture, of)
        yield from _outside(capture, of)
    yield from _findings(evaluation)
    yield from _statements(capture, of)
    yield from _locks(capture)
    yield from _objects(capture, of)
    yield from _blocks(capture)
    yield from _sessions(capture, of)
    yield from _not_measured(capture, evaluation)
    yield from _own_cost(capture)


def _section(title: str, columns: str = "") -> Iterator[Text]:
    yield Text("")
    yield Text.assemble((title, "bold"), (columns.rjust(WIDTH - len(title)) if columns else "", "dim"))


def _header(capture: Capture, of: Window) -> Iterator[Text]:
    target = capture.manifest.target
    cpus = f", {of.cpu_count} CPUs" if of.cpu_count else ""
    connections = f", max_connections {target.detail['max_connections']}" if target.detail.get("max_connections") else ""
    yield Text.assemble(("server    ", "dim"), f"PostgreSQL {target.version or 'of unknown version'}{cpus}{connections}")
    began = f"from {of.began:%Y-%m-%d %H:%M:%S} UTC, " if of.began else ""
    yield Text.assemble(("window    ", "dim"), f"{began}{seconds(of.window_s)} s")
    tier = {"shm": "shared memory", "sql": "SQL"}.get(of.tier, of.tier)
    missed = f"{of.missed:,} missed ({seconds(of.unknown_s)} s unknown)" if of.missed else "none missed"
    yield Text.assemble(("sampling  ", "dim"), f"{tier} at {of.rate_hz:g} Hz: {of.ticks:,} passes taken, {missed}")


def _made_from_files(capture: Capture) -> Iterator[Text]:
    """What a capture without sessions has, in place of where the time went."""
    kind = capture.manifest.target.kind
    source = {"wal": "the files of the log", "files": "the pages of files", "informix": "listings of Informix"}.get(kind, "files")
    yield Text(f"Made from {source}; no session was sampled. For leadline sql:")
    for name, figures in sorted(capture.manifest.tables.items()):
        yield Text(f"  {name:<20}{figures.get('rows', 0):>16,} rows")
    for note in capture.manifest.notes:
        yield from _wrapped(note, "dim")


def _ended(capture: Capture) -> Iterator[Text]:
    if capture.interrupted:
        yield Text("This capture was interrupted: it shows what was written until then.", style="yellow")
    error = capture.manifest.error
    if error:
        yield Text(fit(f"It ended early: {one_line(error.get('message', ''))}", WIDTH), style="yellow")


def _bar(length: float, wait: str, width: int = BAR) -> Text:
    """A bar of `length` 0 to 1 in the colour of the class, in eighths of a character."""
    eighths = round(length * width * 8)
    if length > 0:
        eighths = max(eighths, 1)
    text = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
    return Text(text, style=wait_class(wait).dark)


def _classes(capture: Capture, of: Window) -> Iterator[Text]:
    cpus = f" on {of.cpu_count} CPUs" if of.cpu_count else ""
    yield Text("")
    yield Text.assemble(
        ("Database time ", "bold"), (f"{seconds(of.db_time_s)} s", "bold"), f": {of.aas:.2f} sessions active on average (AAS){cpus}"
    )
    classes = where.by_class(capture)
    if not classes:
        yield Text("no session was active")
        return
    yield Text(f"{'class  event':<28}{'seconds':>9}{'AAS':>8}{'share':>8}", style="dim")
    most = classes[0].seconds
    for c in classes:
        shown = c.events[:MOST_EVENTS]
        only = len(c.events) == 1 and len(c.wait_class) + len(c.events[0].event) < 27
        name = c.wait_class + (f":{shown[0].event}" if only and shown[0].event != c.wait_class else "")
        yield _time_line(name, c.seconds, of, "bold").append_text(_bar(c.seconds / most, c.wait_class))
        if c.wait_class == "CPU":
            yield from _cpu_lines(capture, of, most)
        elif not only:
            for event in shown:
                yield _time_line("  " + event.event, event.seconds, of, "").append_text(_bar(event.seconds / most, c.wait_class))
            if len(c.events) > MOST_EVENTS:
                rest = c.events[MOST_EVENTS:]
                yield _time_line(f"  {len(rest)} more", sum(e.seconds for e in rest), of, "dim")


def _time_line(name: str, spent_s: float, of: Window, style: str) -> Text:
    aas = spent_s / of.observed_s
    return Text.assemble((f"{fit(name, 27):<28}", style), f"{seconds(spent_s):>9}{aas:>8.2f}{percent(of.share(spent_s)):>8}  ")


def _cpu_lines(capture: Capture, of: Window, most: float) -> Iterator[Text]:
    split = where.cpu_split(capture)
    parts = (("  running", split.run_s), ("  waiting to run", split.queue_s), ("  not split", split.unknown_s))
    if split.run_s + split.queue_s == 0:
        yield Text("  running and waiting to run could not be told apart", style="dim")
        return
    for name, spent_s in parts:
        if spent_s > 0:
            yield _time_line(name, spent_s, of, "").append_text(_bar(spent_s / most, "CPU"))


def _outside(capture: Capture, of: Window) -> Iterator[Text]:
    rows = where.outside(capture)
    if not rows:
        return
    yield Text("")
    yield Text(f"{'not database time':<36}{'seconds':>9}{'sessions':>10}  mostly", style="dim")
    for row in rows:
        yield Text(f"{fit(row.what, 35):<36}{seconds(row.seconds):>9}{row.seconds / of.observed_s:>10.2f}  {fit(row.events, WIDTH - 57)}")


def _findings(evaluation: Evaluation) -> Iterator[Text]:
    found = len(evaluation.findings)
    yield from _section(f"Findings: {found or 'none'}", f"{'seconds':>9}{'share':>8}" if found else "")
    for finding in evaluation.findings[:MOST_FINDINGS]:
        yield finding_line(finding)
    if found > MOST_FINDINGS:
        yield Text(f"{found - MOST_FINDINGS} more: leadline findings lists them all", style="dim")


def finding_line(finding: Finding) -> Text:
    """Severity, id, subject, cost: one line of 80 columns."""
    cost = seconds(finding.cost_s) if finding.cost_s is not None else "-"
    numbers = f"{cost:>9}{percent(finding.share_of_db_time) or '-':>8}"
    name = f"{finding.severity:<9}{finding.id}  "
    room = WIDTH - len(numbers) - len(name) - 1
    return Text.assemble(
        (f"{finding.severity:<9}", SEVERITY_STYLES.get(finding.severity, "")),
        (f"{finding.id}  ", "bold"),
        f"{fit(one_line(finding.subject), room):<{room}} ",
        numbers,
    )


def finding_lines(finding: Finding) -> Iterator[Text]:
    """One finding in full: cost, what was seen, what to do."""
    yield finding_line(finding)
    yield from _wrapped("  " + finding.statement)
    yield from _wrapped(f"  confidence {finding.confidence}, {count(finding.samples, 'sample')}", "dim")
    yield Text("  What to do", style="bold")
    yield from _advice(finding.action)
    yield Text("")


def _advice(markdown: str) -> Iterator[Text]:
    """Paragraphs and items filled again for the terminal, code line by line."""
    block: list[str] = []
    in_code = False
    for line in [*markdown.splitlines(), ""]:
        fence = line.startswith("```")
        if in_code and not fence:
            yield Text("      " + line)
            continue
        if block and (fence or not line.strip() or line.startswith("- ")):
            text = " ".join(block)
            yield from _wrapped("    " + text, hanging=2 if text.startswith("- ") else 0)
            block = []
        if fence:
            in_code = not in_code
        elif line.strip():
            block.append(line.strip())


def rest_lines(evaluation: Evaluation, *, reasons: bool) -> Iterator[Text]:
    """The rules that gave no finding: how many, and with `reasons` which and why."""
    unknown, clean = evaluation.not_evaluated, evaluation.clean
    if reasons:
        yield from _wrapped(f"found nothing: {', '.join(clean) or 'none'}")
        for name, reason in unknown:
            yield from _wrapped(f"not evaluated: {name}: {reason}")
        if evaluation.not_applicable:
            yield from _wrapped(f"not about this capture: {', '.join(name for name, _ in evaluation.not_applicable)}")
        return
    found = len(evaluation.findings)
    tail = f"; {len(unknown)} could not be evaluated (--all says why)" if unknown else ""
    yield from _wrapped(f"{count(found, 'finding')}; {count(len(clean), 'rule')} found nothing{tail}", "dim")


def _statements(capture: Capture, of: Window) -> Iterator[Text]:
    found = statements(capture, 5)
    if not found:
        return
    yield from _section("Top statements", f"{'seconds':>9}{'share':>8}")
    for s in found:
        yield _spender_line(s, f"in {count(s.sessions, 'session')}", of)
        yield Text("  " + fit(one_line(s.label), WIDTH - 2), style="dim")


def _spender_line(spender: Spender, name: str, of: Window) -> Text:
    """Name, the classes it waited in, seconds and share."""
    parts = [(f"{name:<16}", "")]
    room = WIDTH - 17 - 16
    for c, spent_s in spender.by_class.items():
        if spent_s < 0.005 * spender.seconds:
            break
        part = f"{c} {100 * spent_s / spender.seconds:.0f}%  "
        if len(part) > room:
            break
        room -= len(part)
        parts.append((part, wait_class(c).dark))
    return Text.assemble(*parts, " " * room, f"{seconds(spender.seconds):>9}{percent(of.share(spender.seconds)):>8}")


def _locks(capture: Capture) -> Iterator[Text]:
    trees = lock_trees(capture, 3)
    if not trees:
        return
    trees = [t for t in trees if t.seconds >= SMALLEST_CHAIN * trees[0].seconds]
    yield from _section("Lock chains", "seconds")
    for tree in trees:
        yield _root_line(tree)
        if tree.statement:
            yield Text("  last: " + fit(one_line(tree.statement), WIDTH - 8), style="dim")
        yield from _waiter_lines(tree.waiters, "  ")
    more = count_roots(capture) - len(trees)
    if more > 0:
        yield Text(count(more, "smaller chain"), style="dim")


def _root_line(tree: LockTree) -> Text:
    age = f", transaction {seconds(tree.xact_age_s)} s old" if tree.xact_age_s is not None else ""
    name = f"{one_line(tree.name)}: {tree.state}, {count(tree.victims, 'victim')}{age}"
    return Text.assemble((f"{fit(name, WIDTH - 10):<{WIDTH - 9}}", "bold"), f"{seconds(tree.seconds):>9}")


def _waiter_lines(waiters: list[Waiter], indent: str) -> Iterator[Text]:
    for at, waiter in enumerate(waiters[:MOST_WAITERS]):
        last = at == len(waiters) - 1
        queued = " (in the queue)" if waiter.queued else ""
        name = f"{indent}{'└' if last else '├'} {waiter.pid} {one_line(waiter.who)}: {waiter.mode} on {one_line(waiter.object)}{queued}"
        yield Text(f"{fit(name, WIDTH - 10):<{WIDTH - 9}}{seconds(waiter.seconds):>9}")
        yield from _waiter_lines(waiter.waiters, indent + ("  " if last else "│ "))
    if len(waiters) > MOST_WAITERS:
        rest = waiters[MOST_WAITERS:]
        yield Text(f"{fit(f'{indent}└ {len(rest)} more', WIDTH - 10):<{WIDTH - 9}}{seconds(sum(w.seconds for w in rest)):>9}", style="dim")


def _objects(capture: Capture, of: Window) -> Iterator[Text]:
    found = objects(capture, 6)
    if not found:
        return
    yield from _section("Objects waited for", f"{'locks':>9}{'buffers':>9}{'seconds':>9}{'share':>8}")
    for o in found:
        room = WIDTH - 36
        parts = f"{seconds(o.lock_s) if o.lock_s else '-':>9}{seconds(o.buffer_s) if o.buffer_s else '-':>9}{seconds(o.seconds):>9}"
        yield Text(f"{fit(one_line(o.object), room):<{room + 1}}{parts}{percent(of.share(o.seconds)):>8}")


def _blocks(capture: Capture) -> Iterator[Text]:
    found = hot_blocks(capture, 6)
    if not found:
        return
    yield from _section("Hot blocks", f"{'hottest':>10}{'of':>6}  {'kind of page':<22}{'waiters':>8}{'seconds':>9}")
    for b in found:
        room = WIDTH - 58
        numbers = f"{b.block:>10}{b.blocks:>6}  {fit(b.page_kind, 22):<22}{'max ' + str(b.most_waiters):>8}{seconds(b.seconds):>9}"
        yield Text(f"{fit(one_line(b.object), room):<{room + 1}}{numbers}")


def _sessions(capture: Capture, of: Window) -> Iterator[Text]:
    found = sessions(capture, 6)
    if not found:
        return
    yield from _section("Top sessions", f"{'mostly':<20}{'seconds':>9}{'share':>8}")
    for s in found:
        who = " ".join(filter(None, (s.application_name or s.usename, s.client_addr)))
        kind = who if s.backend_type == "client backend" else s.backend_type
        event, wait = (s.top_event, next(iter(s.by_class))) if s.by_class else ("idle in transaction", "Client")
        spent = s.seconds or s.idle_in_xact_s
        room = WIDTH - 37
        yield Text.assemble(
            f"{fit(f'{s.pid} {one_line(kind)}', room - 1):<{room}}",
            (f"{fit(event, 19):<20}", wait_class(wait).dark),
            f"{seconds(spent):>9}{percent(of.share(s.seconds)) if s.seconds else '-':>8}",
        )


def _not_measured(capture: Capture, evaluation: Evaluation) -> Iterator[Text]:
    missing = where.not_measured(capture)
    if not missing and not evaluation.not_evaluated:
        return
    yield from _section("Not measured")
    for item in missing:
        yield from _wrapped(f"{item.what}: {item.why}" if item.why else item.what)
        if item.hint:
            yield from _wrapped(f"  {item.hint}", "dim")
    if evaluation.not_evaluated:
        names = ", ".join(name for name, _ in evaluation.not_evaluated)
        yield from _wrapped(f"findings not evaluated (leadline findings --all says why): {names}")


def _wrapped(text: str, style: str = "", hanging: int = 2) -> Iterable[Text]:
    import textwrap

    indent = " " * (len(text) - len(text.lstrip()))
    for line in textwrap.wrap(one_line(text), WIDTH, initial_indent=indent, subsequent_indent=indent + " " * hanging):
        yield Text(line, style=style)


def _own_cost(capture: Capture) -> Iterator[Text]:
    cost = capture.manifest.cost
    parts = []
    if cost.cpu_percent_of_core is not None:
        parts.append(f"{cost.cpu_percent_of_core:.2f}% of one CPU")
    if cost.bytes_written is not None:
        parts.append(f"{quantity(cost.bytes_written, 'B')} written")
    if not parts:
        return
    yield Text("")
    yield Text.assemble(("leadline itself used ", "dim"), ", ".join(parts))
