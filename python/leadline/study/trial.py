"""A trial of a ready study that is a module of its own: its options, one object of JSON, and errors as a line on stderr."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

from leadline.errors import LeadlineError
from leadline.units import seconds_of


def of_pair(name: str) -> argparse.ArgumentParser:
    """The options of a trial that asks both servers of a pair."""
    parser = argparse.ArgumentParser(prog=f"leadline.study.{name}")
    parser.add_argument("primary")
    parser.add_argument("standby")
    return parser


def take_times(parser: argparse.ArgumentParser, **defaults: str) -> None:
    """An option for each: for_s="10s" is --for, in seconds."""
    for name, default in defaults.items():
        parser.add_argument(f"--{name.removesuffix('_s')}", dest=name, type=seconds_of, default=seconds_of(default))


def run(parser: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], dict[str, Any]], argv: list[str]) -> int:
    """The exit code."""
    try:
        print(json.dumps(measure(parser.parse_args(argv))))
    except LeadlineError as e:
        print(f"{e.message}: {e.detail}" if e.detail else e.message, file=sys.stderr)
        return 2
    return 0
