"""Evidence of Informix: what its own tools print. Its pages: crates/page/src/informix.rs, pagescan/src/formats/informix.rs.

onstat.py and oncheck.py read text, line by line; capture.py makes tables of it; sections.py asks who waited for what.
"""

from __future__ import annotations

from pathlib import Path

from leadline.engines import Engine, Subject

ENGINE = Engine(
    name="informix",
    directory=Path(__file__).parent,
    subjects=(
        Subject("informix", lambda _: "Which buffers of Informix were waited for", lambda target: [(target.kind, target.name)]),
    ),
    domains={"informix": ("informix",)},
    sections="leadline.engines.informix.sections:SECTIONS",
    product="Informix",
)
