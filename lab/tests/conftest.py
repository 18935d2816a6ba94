"""What several test files need."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import settings

# How long an example may take says something of the machine only.
settings.register_profile("lab", deadline=None)
settings.load_profile("lab")

SSHD_FOLDER = Path("/run/sshd")
"""Every ``sshd`` wants it, wherever it runs."""


def pytest_configure(config: pytest.Config) -> None:
    """Remember what was there: in the first process alone, whose workers come later and go earlier."""
    config.stash[MADE] = not hasattr(config, "workerinput") and not SSHD_FOLDER.exists()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave it as it was, when no test can need it any more."""
    if config.stash.get(MADE, False):
        with contextlib.suppress(OSError):
            SSHD_FOLDER.rmdir()


MADE = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def seeds() -> dict[str, list[str]]:
    """Lines of each seed by its number; skips, visibly, where the seeds are not on this machine."""
    named = os.environ.get("QUIVER_SEEDS")
    folder = Path(named) if named else Path(__file__).resolve().parents[2] / ".." / "shared" / "seeds"
    files = {path.name[:3]: path for path in sorted(folder.glob("00?_*.txt"))}
    if len(files) < 5:
        pytest.skip(f"the seeds are not here (set QUIVER_SEEDS; looked in {folder.name}/)")
    return {number: path.read_text(encoding="utf-8").splitlines() for number, path in files.items()}
