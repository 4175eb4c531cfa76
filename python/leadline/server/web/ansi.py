"""Output of programs as parts with names of classes: colours are kept, and whatever else could steer a terminal or a page is taken out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from leadline.book.shown import visible

LONGEST_LINE = 20_000
_CONTROL = re.compile(
    r"\x1b\[([\d;:]*)m"  # colours
    r"|\x1b\[[0-?]*[ -/]*[@-~]"  # other sequences of a terminal
    r"|\x1b[\]P^_X][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links and the like
    r"|\x1b[ -/]*[0-~]?"
)
_COLOURS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
Part = tuple[str, str]


@dataclass
class Colours:
    """What is set at a point of the output."""

    classes: dict[str, str] = field(default_factory=dict)

    def parts(self, line: str) -> list[Part]:
        """Class names and text, in order; together the text of the line."""
        out: list[Part] = []
        if "\r" in line:  # a progress bar: what was drawn last
            line = line.rstrip("\r").rsplit("\r", 1)[-1]
        at = 0
        for found in _CONTROL.finditer(line[:LONGEST_LINE]):
            self._add(out, line[at : found.start()])
            at = found.end()
            if found[1] is not None:
                self._set(found[1])
        self._add(out, line[at:LONGEST_LINE])
        if len(line) > LONGEST_LINE:
            out.append(("cut", f" … {len(line) - LONGEST_LINE:,} more characters in this line"))
        return out

    def _add(self, out: list[Part], text: str) -> None:
        if text:
            out.append((" ".join(self.classes.values()), visible(text)))

    def _set(self, codes: str) -> None:
        numbers = [int(code or 0) for code in re.split("[;:]", codes)[:32] if len(code) < 6]
        at = 0
        while at < len(numbers):
            code = numbers[at]
            at += 1
            if code == 0:
                self.classes.clear()
            elif code == 1:
                self.classes["weight"] = "b"
            elif code in (2, 3, 4):
                self.classes["style"] = {2: "dim", 3: "i", 4: "u"}[code]
            elif code in (22, 23, 24):
                self.classes.pop("weight" if code == 22 else "style", None)
            elif 30 <= code <= 37 or 90 <= code <= 97:
                self.classes["fg"] = "c-" + _COLOURS[code % 10]
            elif 40 <= code <= 47 or 100 <= code <= 107:
                self.classes["bg"] = "on-" + _COLOURS[code % 10]
            elif code == 39:
                self.classes.pop("fg", None)
            elif code == 49:
                self.classes.pop("bg", None)
            elif code in (38, 48):
                at += {5: 2, 2: 4}.get(numbers[at] if at < len(numbers) else 0, 0)  # of 256 or of all colours: not shown
