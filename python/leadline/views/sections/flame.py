"""Flame graphs of a trace in the report: what ran, what slept, what failed."""

from __future__ import annotations

import re
from dataclasses import dataclass

from leadline.views.flame import KINDS, folded
from leadline.views.flame_svg import flame_svg
from leadline.views.sections import Context, Section


@dataclass(frozen=True)
class Picture:
    """page: an HTML page of its own, as the graph has styles and a script; aspect: its width / height, as CSS has it."""

    note: str
    page: str
    aspect: str


def _section(kind: str) -> Section:
    samples, title, unit = KINDS[kind]

    def picture(of: Context) -> Picture:
        svg = flame_svg(folded(of.capture, kind), title, "a click on a box zooms, Escape shows all again", unit)
        [width, height] = re.search(r'viewBox="0 0 (\d+) (\d+)"', svg).groups()  # type: ignore[union-attr]
        page = f'<!doctype html><meta name="color-scheme" content="light dark"><style>body {{ margin: 0 }}</style>{svg}'
        return Picture(f"As a file: leadline flame {of.capture.path} --{kind} -o {kind}.svg", page, f"{width} / {height}")

    def has_some(of: Context) -> bool:
        return bool(of.capture.scalar(f"select exists (from stack_sample join thread_name using (thread_id) where kind = '{samples}')"))

    needs = ("stack_sample", "thread_name", "user_frames", "kernel_stack")
    return Section(f"flame_{samples}", title, needs, picture, html="flame.html.j2", in_text=False, in_json=False, applies=has_some)


SECTIONS = tuple(_section(kind) for kind in ("on-cpu", "off-cpu", "failed"))
