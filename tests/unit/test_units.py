"""Sizes and durations, in and out: kB, MB and GB are of 1024, whatever prints or reads them."""

from __future__ import annotations

import re
from pathlib import Path

import leadline
import pytest
from leadline.errors import LeadlineError
from leadline.units import age, age_in_words, bits_of, bytes_of, duration, seconds_of, short_size, sized, whole_size

PACKAGE = Path(leadline.__file__).parent


def test_sizes_are_read_as_postgresql_reads_them() -> None:
    given = ("8192", "0", "300B", "8kB", "64k", "64K", "16MB", "1.5 GB", "2TiB", " 1 mb ")
    read = [8192, 0, 300, 8192, 65536, 65536, 16 << 20, 3 << 29, 2 << 40, 1 << 20]
    assert [bytes_of(text) for text in given] == read
    assert bytes_of("9007199254740993") == 9007199254740993, "a whole number loses no digit"
    for text in ("", "MB", "-1MB", "1,5GB", "1e3", "5 XB", "1 MB/s", "٣MB", "8388608TB", "9" * 5000, "many"):
        with pytest.raises(LeadlineError) as caught:
            bytes_of(text)
        assert caught.value.kind == "usage" and caught.value.hint
    for text, limits in (("4096", {"bare": False}), ("0MB", {"least": 1}), ("", {"bare": False}), ("0.1B", {"least": 1})):
        with pytest.raises(LeadlineError):
            bytes_of(text, **limits)


def test_sizes_are_printed_by_1024() -> None:
    values = (None, 0, 999, 1023, 1024, 1500, 8192, 1_048_064, 1_048_575, 1 << 20, 17_200_000, 1023 << 20, 5 << 30, 3 << 50, 5000 << 50)
    shown = ["", "0B", "999B", "1023B", "1kB", "1.46kB", "8kB", "1MB", "1MB", "1MB", "16.4MB", "1023MB", "5GB", "3PB", "5000PB"]
    assert [sized(v) for v in values] == shown
    assert [sized(v) for v in (-1500, 0.4, 1023.6)] == ["-1.46kB", "0B", "1kB"]
    assert [short_size(v) for v in (None, 0, 812, 12 << 10, 3.4 * (1 << 20), 1 << 30)] == ["", "0", "812", "12k", "3.4M", "1.0G"]
    assert [whole_size(v) for v in (0, 1, 100 << 10, 16384 * 8192, (1 << 30) + 1024)] == ["0 B", "1 B", "100 kB", "128 MB", "1048577 kB"]


def test_what_is_printed_is_read_back() -> None:
    for exponent in range(62):
        for value in ((1 << exponent) - 1, 1 << exponent, 3 << exponent >> 1):
            assert bytes_of(sized(value)) == pytest.approx(value, rel=0.006)
            assert bytes_of(whole_size(value)) == value


def test_durations() -> None:
    given = ("161us", "500ms", "60s", "5m", "5min", "1h", "2", "1.5 s", "7d", "4w")
    assert [seconds_of(text) for text in given] == [pytest.approx(161e-6), 0.5, 60, 300, 300, 3600, 2, 1.5, 604_800, 2_419_200]
    for text in ("", "1 day", "-5s", "s", "1:30", "5 5s", "٣s", "inf", "1e3s"):
        with pytest.raises(LeadlineError) as caught:
            seconds_of(text)
        assert caught.value.kind == "usage" and caught.value.hint
    with pytest.raises(LeadlineError):
        seconds_of("30", bare=False)
    assert [duration(value) for value in (None, 0.5, 59.9994, 67, 3723)] == ["", "0.500 s", "59.999 s", "0:01:07", "1:02:03"]
    ages = (None, -1, 0.004, 0.25, 7.31, 9.97, 82.4, 724, 11220, 439200)
    assert [age(value) for value in ages] == ["", "0", "0.00", "0.25", "7.3", "10", "82", "12m04", "3h07", "5d02"]
    assert [age_in_words(value) for value in (7.31, 724)] == ["7.3 s", "12m04"]


def test_rates_of_links_are_decimal() -> None:
    assert [bits_of(text) for text in ("100mbit", "1Gbit/s", "64kbit", "9600")] == [1e8, 1e9, 64e3, 9600]
    with pytest.raises(LeadlineError):
        bits_of("100MB")


def test_no_query_prints_decimal_megabytes() -> None:
    """A finding formats its own sentence: a division by 1e6 before MB is a size that no server would print."""
    wrong = [
        f"{path.relative_to(PACKAGE)}: {line.strip()[:80]}"
        for path in sorted(PACKAGE.rglob("*.sql"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if re.search(r"\b(\w*bytes(_s)?|kept)(, 0\))?\)? / 1e[369]|\b(MB|GB|kB)\b.* / 1e[369]", line)
    ]
    assert not wrong
