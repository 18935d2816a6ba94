"""What several test files need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def seeds() -> dict[str, list[str]]:
    """Lines of each seed by its number; skips, visibly, where the seeds are not on this machine."""
    named = os.environ.get("QUIVER_SEEDS")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / ".." / "shared" / "seeds"
    files = {path.name[:3]: path for path in sorted(folder.glob("00?_*.txt"))}
    if len(files) < 5:
        pytest.skip(f"the seeds are not here (set QUIVER_SEEDS; looked in {folder.name}/)")
    return {number: path.read_text(encoding="utf-8").splitlines() for number, path in files.items()}
