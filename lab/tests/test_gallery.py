"""Drawings made anew from a reproduction's table, and those that are committed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from quiver_lab.published import PAPERS
from quiver_lab.reproduce import design, gallery, page
from quiver_lab.reproduce.beside import Panel
from test_reproduce import laid, make

FIGURES = Path(__file__).resolve().parents[2] / "docs" / "figures"


def numbers(panel: Panel) -> list[tuple[float | None, float | None, float | None, bool]]:
    return [(o.value, o.low, o.high, o.valid) for r in panel.rows for e in r.entries for o in e.ours]


def test_drawings_are_made_anew_from_the_table_alone(tmp_path: Path) -> None:
    _, all_panels = laid("kosak2025", make("kosak2025", tmp_path / "o", repeats=1))
    folder = tmp_path / "drawn"
    folder.mkdir()
    page.write_csv(all_panels, folder / "beside.csv")
    (folder / "old.svg").write_text("gone")
    (folder / "README.md").write_text("# Mine\n\nWords.\n")
    for _ in range(2):
        paths = gallery.write(design("kosak2025"), folder)
    drawn = [f for _, mine in page.draw(design("kosak2025"), all_panels) for f in mine]
    assert sorted(p.name for p in paths) == sorted(f"{f.name}.svg" for f in drawn)
    assert sorted(folder.glob("*.svg")) == sorted(paths)
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert text.startswith("# Mine\n\nWords.\n")
    assert text.count(gallery.BEGIN) == 1
    assert all(f"({p.name})" in text for p in paths)
    again = {p.name: p for p in gallery.read(folder / "beside.csv")}
    for panel in (p for p in all_panels if p.rows):
        same = again[panel.name]
        assert [(r.keys, e.quantity, e.published_text) for r in panel.rows for e in r.entries] == [
            (r.keys, e.quantity, e.published_text) for r in same.rows for e in r.entries
        ]
        assert numbers(panel) == numbers(same)


def test_a_table_that_is_none_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "beside.csv").write_text("panel,cell\nI,workers=1\n")
    with pytest.raises(ValueError, match=r"beside\.csv: line 2"):
        gallery.read(tmp_path / "beside.csv")


def test_committed_drawings_are_those_of_their_tables(tmp_path: Path) -> None:
    for paper in PAPERS:
        (tmp_path / paper).mkdir()
        for name in ("beside.csv", "README.md"):
            shutil.copyfile(FIGURES / paper / name, tmp_path / paper / name)
        gallery.write(design(paper), tmp_path / paper)
        for file in (tmp_path / paper).iterdir():
            assert file.read_bytes() == (FIGURES / paper / file.name).read_bytes(), (
                f"quiver-lab redraw {paper} writes {file.name}"
            )
        assert {f.name for f in (FIGURES / paper).glob("*.svg")} == {f.name for f in (tmp_path / paper).glob("*.svg")}
