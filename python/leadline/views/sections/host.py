"""Sections of a capture that has evidence of the host."""

from __future__ import annotations

from leadline.views.sections import Section

SECTIONS: tuple[Section, ...] = ()
