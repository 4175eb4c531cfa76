"""docs/guides/studies.md: the walk from question to report, in small, and the design file that it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import no_oracle
from leadline.engines.postgres.server.binaries import host_dirs, wheel_dirs
from leadline.study.design import KINDS, OF_LOADS, parse

GUIDE = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "studies.md").read_text(encoding="utf-8")
SMALL = ["--repetitions", "8", "--for", "500ms", "--clients", "2"]  # 7 are needed: on a busy host a trial may end no transaction


def test_the_walk_leads_from_the_question_to_a_report_that_answers_it(tmp_path: Path) -> None:
    """A server without lz4 would refuse the level; then the walk is of pglz, which all have."""
    level = "lz4" if any(one.source == "this host" for one in host_dirs()) else "pglz" if wheel_dirs() else no_oracle("no PostgreSQL")
    walk = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)[0].strip().splitlines()
    assert [line.split()[2] for line in walk] == ["plan", "run", "report"] and len(walk) == 3
    environment = {name: value for name, value in os.environ.items() if name != "LEADLINE_RUN"} | {"LEADLINE_BOOK": str(tmp_path / "book")}
    said = []
    for line in walk:
        words = shlex.split(line.replace("=off,lz4", f"=off,{level}"))[1:]
        words += SMALL if words[1] != "report" else []
        done = subprocess.run([sys.executable, "-m", "leadline", *words], env=environment, cwd=tmp_path, capture_output=True, text=True,
                              timeout=200, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        said.append(done.stdout)
    assert "2 cells in 8 blocks: 16 trials" in said[0] and "smallest" in said[0]
    question, answer = said[1].splitlines()[:2]
    assert question.split(maxsplit=1) == ["question", f"Does another wal_compression ({level} instead of off) help?"]
    assert re.match(rf"answer +wal_compression={level}: (more|less|equivalent within ±3 %|inconclusive): ", answer), answer
    assert f"less: wal_compression={level} has 0." in said[1], "full-page images are smaller: compression must show in the WAL"
    page = (tmp_path / said[2].strip()).read_text()
    assert page.index(f"wal_compression={level}, tps:") < page.index("<h2>"), "the answer is before everything else"


def test_the_design_file_of_the_guide_is_one() -> None:
    study = parse(re.findall(r"```toml\n(question.*?)```", GUIDE, re.DOTALL)[0], "guide")
    assert [study.cell_name(cell) for cell in study.cells] == [
        "work_mem=4MB, index=without", "work_mem=4MB, index=with", "work_mem=64MB, index=without", "work_mem=64MB, index=with",
    ]  # fmt: skip


@pytest.mark.parametrize("name", [*KINDS, *OF_LOADS])
def test_the_guide_names_every_kind_of_factor_and_every_figure_of_a_load(name: str) -> None:
    assert f"`{name}" in GUIDE
