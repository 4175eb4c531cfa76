"""What an experiment allows to say, in words: never "the same"."""

from __future__ import annotations

import math
from dataclasses import dataclass

from leadline.lab.paired import ENOUGH_PAIRS, LEVEL, Ratio

EQUIVALENT, INCONCLUSIVE, NONE = "equivalent", "inconclusive", "none"
BETTER = ("less", "more")


@dataclass(frozen=True)
class Verdict:
    """word: faster, slower, less, more, equivalent, inconclusive or none. good: whether that is the direction that was wanted; None
    where no direction was shown. text: a sentence."""

    word: str
    good: bool | None
    text: str


@dataclass(frozen=True)
class OneOf:
    """A comparison that is one of several. differs, equivalent: p of signed_rank.p_differs and p_outside, corrected for all of them
    (blocks.holm)."""

    comparisons: int
    differs: float
    equivalent: float


def verdict(
    ratio: Ratio | None, *, quantity: str, margin: float, better: str, is_time: bool = False, pairs: int = 0, one_of: OneOf | None = None,
    sides: tuple[str, str] = ("the variant", "the baseline"), pair: str = "pair", more: str = "--pairs",
) -> Verdict:  # fmt: skip
    """ratio: of the variant to the baseline; None without a whole pair. quantity: what was measured. margin: a share such as 0.02:
    differences within it do not matter. better: less or more. pairs: how many there were, where ratio is None. one_of: if more was
    compared; the interval is then still that of this ratio alone, and the word needs more than it. sides, pair, more: what they are
    called, and the option that asks for more."""
    have, least = ratio.pairs if ratio is not None else pairs, enough(one_of.comparisons if one_of else 1)
    if ratio is None or have < least:
        needed = f"{least} are needed" + (f" for {one_of.comparisons} comparisons" if one_of and one_of.comparisons > 1 else "")
        return Verdict(NONE, None, f"no verdict: {have} {pair}{'' if have == 1 else 's'}, and {needed} ({more} {least} or more)")
    interval = f"({ratio.low:.4g} to {ratio.high:.4g}, {100 * LEVEL:g} % interval, {ratio.pairs} {pair}s)"
    direction = "less" if ratio.high < 1 else "more" if ratio.low > 1 else ""
    equivalent, corrected = 1 - margin <= ratio.low and ratio.high <= 1 + margin, ""
    if one_of is not None and one_of.comparisons > 1:
        shown, equivalent = one_of.differs <= 1 - LEVEL, equivalent and one_of.equivalent <= 1 - LEVEL
        p = one_of.equivalent if equivalent else one_of.differs
        corrected = f"; p = {p:.2g}, corrected for {one_of.comparisons} comparisons"
        direction = direction if shown else ""
    within = f"±{100 * margin:g} %"
    if equivalent:
        seen = f"; {_word(direction, is_time)}, but by less than the margin" if direction else ""
        said = f"equivalent within {within}: the ratio of {quantity} is {ratio.estimate:.4g} {interval}{seen}{corrected}"
        return Verdict(EQUIVALENT, None, said)
    if not direction:
        said = f"inconclusive: the ratio of {quantity} is {ratio.estimate:.4g} {interval}: neither a difference nor within {within}"
        return Verdict(INCONCLUSIVE, None, said + corrected)
    good, word = direction == better, _word(direction, is_time)
    said = f"{word}: {sides[0]} has {ratio.estimate:.4g} times {sides[1]}'s {quantity} {interval}"
    said += f", which is {'better' if good else 'worse'}{corrected}"
    return Verdict(word, good, said)


def enough(comparisons: int = 1, level: float = LEVEL) -> int:
    """The fewest pairs that can show anything of so many comparisons: with fewer, all lie on one side of 1 by chance too often."""
    return max(ENOUGH_PAIRS, math.ceil(1 + math.log2(comparisons / (1 - level)) - 1e-9))


def _word(direction: str, is_time: bool) -> str:
    return {"less": "faster", "more": "slower"}[direction] if is_time else direction


def by_chance(tries: int, level: float = LEVEL) -> float:
    """How often at least one of so many tries of what makes no difference shows one."""
    return float(1 - level**tries)
