"""leadline storage simulate: what would these layouts do?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadline.cli import force
from leadline.cli.forms import form, printed

if TYPE_CHECKING:
    from leadline.storage.files import File
    from leadline.storage.forecast import Tell
    from leadline.storage.trace import Trace


@click.command(
    "simulate",
    short_help="Forecast what layouts of disks would do.",
    epilog="""\b
Examples:
  leadline storage simulate 1x12R10.toml 6xR1.toml --load loads.toml
  leadline storage simulate mine.toml --load loads.toml --drives
  leadline storage simulate mine.toml --trace slow.leadline --closed
  leadline storage simulate *.toml --load l -o forecast.json""",
)
@click.argument("layouts", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="LAYOUT.toml...")
@click.option("--load", "loads", type=click.Path(path_type=Path), metavar="FILE", help="Loads, each simulated by itself.")
@click.option("--trace", "capture", type=click.Path(path_type=Path), metavar="CAPTURE", help="The block trace of `take --kernel` instead.")
@click.option("--device", "devices", multiple=True, metavar="NAME", help="Only requests of this device of the trace.")
@click.option("--closed", is_flag=True, help="Replay by thread: a request waits for those before it.  [default: at its time]")
@click.option("--for", "duration", default="60s", show_default=True, metavar="TIME", help="Simulated time that counts.")
@click.option("--warm-up", "warm_up", default="10s", show_default=True, metavar="TIME", help="Simulated time before that.")
@click.option("--seeds", type=click.IntRange(1, 100), default=6, show_default=True, metavar="N", help="Runs of each layout and load.")
@click.option("--seed", type=click.IntRange(0, 1 << 53), default=1, show_default=True, metavar="N", help="Seed of the first run.")
@click.option("--drives", is_flag=True, help="Also print each drive.")
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FORECAST", help="Write the forecast; the logbook seals it.")
@force
@form()
def command(
    layouts: tuple[Path, ...], loads: Path | None, capture: Path | None, devices: tuple[str, ...], closed: bool, duration: str,
    warm_up: str, seeds: int, seed: int, drives: bool, output: Path | None, force: bool, form: str | None,
) -> int:  # fmt: skip
    """Simulate layouts of disks under a load, event by event.

    A layout is a TOML file: drives, RAID groups, caches, LUNs, and what lies on which LUN. `leadline storage example` has some. The load is
    a file of profiles, or the block trace of a capture. The same files and seeds give the same forecast.

    With -o, the forecast is a file whose hash is in the logbook: `storage score` shows that it was there before the measurement.
    """
    from leadline.progress import TerminalLine
    from leadline.replacing import make_room
    from leadline.storage import files, forecast, text

    if (loads is None) == (capture is None):
        raise click.UsageError("give --load FILE or --trace CAPTURE")
    if capture is None and (closed or devices):
        raise click.UsageError("--closed and --device are for --trace")
    if output is not None:
        make_room(output, overwrite=force)
    layouts_, line = forecast.layouts_of(layouts), TerminalLine()
    try:
        if capture is not None:
            found = _traced(layouts_, capture, devices, closed, line.share)
        else:
            assert loads is not None
            found = _loaded(layouts_, files.File.read(loads), duration, warm_up, seeds, seed, line.share)
    finally:
        line.done()
    if output is not None:
        _write(output, found, overwrite=force)
    if not printed(form, found["results"], found):
        click.echo(text.forecast(found, drives=drives))
    return 0


def _loaded(files: dict[str, File], loads: File, duration: str, warm_up: str, seeds: int, seed: int, tell: Tell) -> dict[str, Any]:
    from leadline.storage import forecast
    from leadline.units import seconds_of

    for_s, warm_up_s = seconds_of(duration), seconds_of(warm_up)
    if not 0 < for_s <= 100_000 or warm_up_s > 100_000:
        raise click.UsageError("--for is above 0, and --for and --warm-up are at most 100,000 s")
    options = {"seeds": seeds, "seed": seed, "for_s": for_s, "warm_up_s": warm_up_s}
    rows = forecast.simulate(files, loads, **options, tell=tell)  # type: ignore[arg-type]  # names and numbers as there
    return forecast.forecast(files, rows, options=options, loads=loads, trace=None, run=_run())


def _traced(files: dict[str, File], capture: Path, devices: tuple[str, ...], closed: bool, tell: Tell) -> dict[str, Any]:
    from leadline.storage import forecast, trace

    read: Trace = trace.read(capture, devices)
    rows = forecast.replay(files, read, closed=closed, tell=tell)
    return forecast.forecast(files, rows, options={"closed": closed}, loads=None, trace=read, run=_run())


def _run() -> str:
    """The run that the logbook has of this command."""
    from leadline.book.recorder import current

    return current().uid if current().place is not None else ""


def _write(output: Path, found: dict[str, Any], *, overwrite: bool) -> None:
    from leadline.book.recorder import current
    from leadline.output import to_json
    from leadline.replacing import write_whole

    write_whole(output, to_json(found) + "\n", "the forecast", overwrite=overwrite)
    current().artifact("forecast", output)
