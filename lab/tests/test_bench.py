"""`scripts/bench`: disturbed benches are repeated and marked, two commits are measured in turns."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType

import pytest

from quiver_lab.canary import Speed, read_core, read_memory

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/bench"
HERE, THERE = (Path("here"), Path("here/target")), (Path("there"), Path("there/target"))


@pytest.fixture(name="bench")
def _bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("quiver_bench", str(SCRIPT))
    spec = importlib.util.spec_from_loader("quiver_bench", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "quiver_bench", module)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    loader.exec_module(module)
    return module


class Machine:
    """Stands for the canary: what is wrong at each reading, then nothing."""

    def __init__(self, *wrong: str) -> None:
        self.wrong = list(wrong)

    def read(self) -> list[str]:
        """The next reading."""
        said = self.wrong.pop(0) if self.wrong else ""
        return [said] if said else []


def test_the_canary_reads_the_cores_that_this_process_may_use() -> None:
    for read in (read_core, read_memory):
        speed = read(0)
        assert speed is None or (speed.bytes_per_cpu_s > 0 and 0 < speed.share <= 1)
        assert read(1 << 12) is None


def test_a_reading_is_held_against_the_best_of_the_run(bench: ModuleType) -> None:
    watch = bench.Watch()
    assert watch.judge("core 0 computes", Speed(100.0, 1.0)) == []
    assert watch.judge("core 0 computes", Speed(91.0, 0.95)) == []
    assert watch.judge("core 0 computes", Speed(50.0, 0.5)) == [
        "core 0 computes at 50 % of its speed",
        "core 0 computes 50 % of the time",
    ]
    assert watch.judge("core 1 computes", Speed(50.0, 1.0)) == [], "each core has a speed of its own"


@pytest.mark.parametrize(
    ("wrong", "runs", "marks"),
    [
        ((), 1, []),
        (("slow",), 2, []),
        (("", "slow", "slow"), 3, []),
        (("slow", "", "", "slow", "slow", "slow"), 3, ["before: slow", "after: slow"]),
    ],
)
def test_a_disturbed_bench_is_repeated_and_marked_where_that_did_not_help(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, wrong: tuple[str, ...], runs: int, marks: list[str]
) -> None:
    runs_of = itertools.count(1)
    monkeypatch.setattr(bench, "run", lambda *_: bench.Result({"x: y": float(next(runs_of))}, []))
    result = bench.watched(bench.Bench("x", "p", "b"), Machine(*wrong), *HERE)
    assert (result.figures, result.disturbed) == ({"x: y": float(runs)}, marks)


def test_what_counts_runs_once_on_whatever_machine(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "run", lambda *_: bench.Result({"x: y": 1.0}, []))
    assert bench.watched(bench.Bench("x", "p", "b", counts=True), Machine("slow"), *HERE).disturbed == []


def test_two_commits_are_measured_in_turns(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = iter([10.0, 20.0, 40.0, 10.0])
    ran: list[Path] = []

    def run(_: object, tree: Path, __: Path) -> object:
        ran.append(tree)
        return bench.Result({"x: y": next(speeds)}, [])

    monkeypatch.setattr(bench, "run", run)
    one = bench.Bench("x", "p", "b")
    pairs = bench.in_turns(one, Machine(), (HERE, THERE), 2)
    assert ran == [Path("here"), Path("there"), Path("there"), Path("here")]
    assert next(bench.rows(one, pairs)).split() == ["x:", "y", "10.00", "30.00", "0.375", "(0.250-0.500)"]
    assert bench.checked_out("no-such-commit", Path("nowhere")) is None


def test_a_bench_that_fails_ends_its_turns(bench: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "run", lambda *_: None)
    assert bench.in_turns(bench.Bench("x", "p", "b"), Machine(), (HERE, THERE), 2) is None


def test_tables_of_the_page_are_those_of_undisturbed_runs(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "performance.md"
    monkeypatch.setattr(bench, "PAGE", page)
    mark = bench.benchpage.BEGIN.format("memif")
    page.write_text(f"{mark}\nold\n{bench.benchpage.END}\n")
    here = {"processor": "P", "processors": "2", "commit": "c"}
    one = '{"median":1,"least":1,"most":1}'
    output = f'{{"case":"vpp, cross-connect","sent":{one},"received":{one},"clocks":null}}'
    assert not bench.write_page(here, {"memif": bench.Result({}, ["slow"], output), "other": bench.Result({}, [])})
    assert "memif was disturbed" in capsys.readouterr().err
    assert "old" in page.read_text()
    assert bench.write_page(here, {"memif": bench.Result({}, [], output)})
    assert "| vpp, cross-connect | 1.00 | 1.00 |  |" in page.read_text()
    assert "P, 2 processors, commit c, " in page.read_text()


def test_beside_vpp_has_figures_of_both_or_of_one(bench: ModuleType) -> None:
    text = "SKIP: a line that is no JSON\n" + "\n".join(
        (
            '{"case":"ip4","vpp":{"median":42.0},"quiver":{"median":17.5},"ratio":{"median":0.4}}',
            '{"case":"edge","vpp":null,"quiver":{"median":200.0},"ratio":null}',
        )
    )
    assert bench.beside(text) == {
        "ip4, clocks": 17.5,
        "ip4, clocks of VPP": 42.0,
        "ip4, ratio": 0.4,
        "edge, clocks": 200.0,
    }
