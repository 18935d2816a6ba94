"""How results came to be: which commands, of which commit. Kept beside them and shown on their pages."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from quiver_lab import __version__
from quiver_lab.processes import CommandError, run

FILE = "origin.json"


class Origin(BaseModel):
    """One call of the lab that made or went on with a campaign."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    command: str
    """As it was typed."""
    lab: str
    """Version of the lab."""
    commit: str = ""
    """Of the checkout that the lab was run from; empty where that was none."""
    changed: bool = False
    """Whether files of that commit were changed and not committed: the commit alone does not tell then what ran."""

    @property
    def words(self) -> str:
        """The commit as readers see it."""
        if not self.commit:
            return f"quiver-lab {self.lab}, not run from a checkout"
        return f"commit {self.commit}" + (", with changes that were not committed" if self.changed else "")


class Origins(BaseModel):
    """What ``origin.json`` holds."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)
    schema_: Literal["quiver-lab-origin/1"] = Field(alias="schema", default="quiver-lab-origin/1")
    calls: tuple[Origin, ...] = ()


def _git(folder: Path, *words: str) -> str:
    with contextlib.suppress(CommandError):
        return run(["git", "-C", str(folder), *words]).strip()
    return ""


def checkout() -> Path:
    """Where a checkout would have to be that this package is run from."""
    return Path(__file__).resolve().parents[3]


def of_call(words: Sequence[str], folder: Path | None = None) -> Origin:
    """This call: ``words`` are those after the program's name."""
    folder = folder or checkout()
    commit = _git(folder, "rev-parse", "HEAD") if (folder / ".git").exists() else ""
    changed = bool(commit) and bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    return Origin(command=shlex.join(["quiver-lab", *words]), lab=__version__, commit=commit, changed=changed)
