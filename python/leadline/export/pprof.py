"""A profile for pprof: profile.proto, gzipped, as https://github.com/google/pprof/blob/main/proto/profile.proto has it."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

from leadline.export.profile import Profile
from leadline.export.protobuf import message, number, packed, text

PART = 1 << 16
# Fields of Profile.
SAMPLE_TYPE, SAMPLE, MAPPING, LOCATION, FUNCTION, STRING = 1, 2, 3, 4, 5, 6
TIME_NANOS, DURATION_NANOS, PERIOD_TYPE, PERIOD, COMMENT, DEFAULT_TYPE = 9, 10, 11, 12, 13, 14
MAIN = 1  # the only mapping


def pprof(profile: Profile) -> Iterator[bytes]:
    """The file, in parts. Its values: samples, and the weight, which viewers show first."""
    whole = gzip.compress(b"".join(_fields(profile)), mtime=0)  # no time in the header: the same capture gives the same bytes
    for at in range(0, len(whole), PART):
        yield whole[at : at + PART]


def _fields(profile: Profile) -> Iterator[bytes]:
    strings = {"": 0}  # number of each string; the first must be the empty one

    def named(string: str) -> int:
        return strings.setdefault(string, len(strings))

    def value_type(value: str, unit: str) -> bytes:
        return number(1, named(value)) + number(2, named(unit))

    yield message(SAMPLE_TYPE, value_type("samples", "count"))
    yield message(SAMPLE_TYPE, value_type(profile.value, profile.unit))
    # A mapping that has its functions: else pprof looks for a binary with symbols.
    yield message(MAPPING, number(1, MAIN) + number(5, named("leadline")) + number(7, 1))
    frames: dict[str, int] = {}  # id of each name, of its function and of its location
    for stack in profile.stacks:
        path = [frames.setdefault(name, len(frames) + 1) for name in reversed(stack.path)]  # the leaf first
        yield message(SAMPLE, packed(1, path) + packed(2, [stack.samples, stack.weight]))
    for name, place in frames.items():
        yield message(LOCATION, number(1, place) + number(2, MAIN) + message(4, number(1, place)))
        # No system name: where it is the same as the name, pprof takes text in parentheses for arguments and cuts it.
        yield message(FUNCTION, number(1, place) + number(2, named(name)))
    yield number(TIME_NANOS, profile.began_ns) + number(DURATION_NANOS, profile.duration_ns)
    if profile.period_ns:
        yield message(PERIOD_TYPE, value_type(profile.value, profile.unit)) + number(PERIOD, profile.period_ns)
    yield number(COMMENT, named(profile.title)) + number(DEFAULT_TYPE, named(profile.value))
    for string in strings:  # last: by now all of them have numbers
        yield text(STRING, string)
