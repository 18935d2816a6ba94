"""What results say of how they came to be."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from quiver_lab import origin
from quiver_lab.report import build
from quiver_lab.runner import Runner
from quiver_lab.store import Store, StoreError
from test_runner import make


def git(folder: Path, *words: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_a_call_names_its_commit_and_whether_that_tells_all(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "file").write_text("a")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "--quiet", "--message", "m")
    clean = origin.of_call(["run", "a b.yaml"], tmp_path)
    assert clean.command == "quiver-lab run 'a b.yaml'"
    assert len(clean.commit) == 40
    assert clean.words == f"commit {clean.commit}"
    (tmp_path / "file").write_text("b")
    assert origin.of_call([], tmp_path).words == f"commit {clean.commit}, with changes that were not committed"


def test_without_a_checkout_the_version_is_what_there_is(tmp_path: Path) -> None:
    assert "not run from a checkout" in origin.of_call(["run"], tmp_path).words


def test_calls_are_kept_shown_and_archived(tmp_path: Path) -> None:
    store = make(tmp_path / "o")
    Runner(store).run()
    assert "do not say which command" in build(store, tmp_path / "before").read_text(encoding="utf-8")
    first = origin.Origin(command="quiver-lab run x", lab="1", commit="c0ffee")
    for call in (first, first, origin.Origin(command="quiver-lab run x --resume", lab="1", commit="c0ffee", changed=True)):
        store.put_origin(call)
    assert [o.command for o in store.origins] == ["quiver-lab run x", "quiver-lab run x --resume"]
    text = build(store, tmp_path / "after").read_text(encoding="utf-8")
    assert "<code>quiver-lab run x</code>: commit c0ffee<" in text
    assert "with changes that were not committed" in text
    store.archive(tmp_path / "a.tar.xz")
    with tarfile.open(tmp_path / "a.tar.xz") as tar:
        assert any(name.endswith("/origin.json") for name in tar.getnames())
    (tmp_path / "o" / "origin.json").write_text("{}}")
    with pytest.raises(StoreError, match=r"origin\.json"):
        _ = Store.open(tmp_path / "o").origins
