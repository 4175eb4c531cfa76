"""What an experiment allows to say, in words: never "the same"."""

from __future__ import annotations

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


def verdict(ratio: Ratio | None, *, quantity: str, margin: float, better: str, is_time: bool = False, pairs: int = 0) -> Verdict:
    """ratio: of the variant to the baseline; None without a whole pair. quantity: what was measured. margin: a share such as 0.02:
    differences within it do not matter. better: less or more. pairs: how many there were, where ratio is None."""
    have = ratio.pairs if ratio is not None else pairs
    if ratio is None or have < ENOUGH_PAIRS:
        have_said = f"{have} pair{'' if have == 1 else 's'}"
        return Verdict(NONE, None, f"no verdict: {have_said}, and {ENOUGH_PAIRS} are needed (--pairs {ENOUGH_PAIRS} or more)")
    interval = f"({ratio.low:.4g} to {ratio.high:.4g}, {100 * LEVEL:g} % interval, {ratio.pairs} pairs)"
    direction = "less" if ratio.high < 1 else "more" if ratio.low > 1 else ""
    within = f"±{100 * margin:g} %"
    if 1 - margin <= ratio.low and ratio.high <= 1 + margin:
        seen = f"; {_word(direction, is_time)}, but by less than the margin" if direction else ""
        return Verdict(EQUIVALENT, None, f"equivalent within {within}: the ratio of {quantity} is {ratio.estimate:.4g} {interval}{seen}")
    if not direction:
        said = f"inconclusive: the ratio of {quantity} is {ratio.estimate:.4g} {interval}: neither a difference nor within {within}"
        return Verdict(INCONCLUSIVE, None, said)
    good, word = direction == better, _word(direction, is_time)
    said = f"{word}: the variant has {ratio.estimate:.4g} times the baseline's {quantity} {interval}"
    said += f", which is {'better' if good else 'worse'}"
    return Verdict(word, good, said)


def _word(direction: str, is_time: bool) -> str:
    return {"less": "faster", "more": "slower"}[direction] if is_time else direction


def by_chance(tries: int, level: float = LEVEL) -> float:
    """How often at least one of so many tries of what makes no difference shows one."""
    return float(1 - level**tries)
