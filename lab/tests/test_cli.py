"""The command line from outside: what it prints, what it returns, one line for every error."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from quiver_lab import campaign, cli, facts
from quiver_lab.records import RunRecord
from quiver_lab.reproduce import Options, campaign_text, design
from quiver_lab.store import Store
from test_reproduce import SIMULATED

CAMPAIGNS = Path(__file__).resolve().parents[1] / "campaigns"


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


Lab = Callable[..., Done]


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Lab:
    """The command line in this process: a start of its own takes a second each."""

    def call(*words: str | Path) -> Done:
        monkeypatch.setattr(sys, "argv", ["quiver-lab", *map(str, words)])
        code: object = 0
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return Done(code if isinstance(code, int) else 0, said.out, said.err)

    return call


def test_plan_says_how_many_and_how_long(lab: Lab) -> None:
    done = lab("plan", CAMPAIGNS / "simulated.yaml")
    assert done.returncode == 0
    assert "24 cells × 5 repeats" in done.stdout
    assert "shorter than the RFCs ask for (quick)" in done.stdout


def test_the_campaigns_that_are_shipped_are_read(lab: Lab) -> None:
    for file in CAMPAIGNS.glob("*.yaml"):
        assert lab("plan", file).returncode == 0, file


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ("++", "2 runs in o"),
        ("+-", "2 runs in o, 1 of them not valid"),
        ("--", "2 runs in o, none of them valid (the report says why)"),
        ("+f", "1 runs in o, 1 failed (--resume tries them again)"),
        ("a", "0 runs in o"),
    ],
)
def test_the_last_line_says_how_a_campaign_ended(runs: str, said: str) -> None:
    status = {"f": "failed", "a": "absent"}
    records = [RunRecord.model_construct(status=status.get(r, "done"), valid=r == "+") for r in runs]
    assert cli.outcome(records, Path("o")) == said


def test_a_campaign_from_run_to_archive(lab: Lab, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    text = (CAMPAIGNS / "simulated.yaml").read_text()
    file.write_text(text.replace("repeats: 5", "repeats: 3").replace("[1, 2]", "[1]").replace("[64, 512]", "[64]"))
    results = tmp_path / "o"
    done = lab("run", file, "--out", results)
    assert done.returncode == 0, done.stderr
    assert "runs in" in done.stdout
    assert "fast-none-one-way-w1-64B" in done.stderr
    again = lab("run", file, "--out", results)
    assert again.returncode == 1
    assert "--resume" in again.stderr
    assert lab("run", file, "--out", results, "--resume").returncode == 0
    assert lab("export", results, "--parquet", tmp_path / "t.parquet").returncode == 0
    assert lab("archive", results, "--file", tmp_path / "a.tar.xz").returncode == 0
    page = lab("report", results, "--out", tmp_path / "r")
    assert page.returncode == 0
    assert (tmp_path / "r" / "report.html").exists()
    versus = lab("compare", results, results, "--dut-a", "fast", "--dut-b", "slow")
    assert versus.returncode == 0
    assert "too few repeats to tell" in versus.stdout
    assert lab("compare", results, results, "--dut-a", "fast").returncode == 1
    judged = lab("verdicts", "kosak2025", results, "--candidate", "fast")
    assert judged.returncode == 0
    assert "cannot be told" in judged.stdout


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    text = (CAMPAIGNS / "simulated.yaml").read_text()
    file = tmp_path / "c.yaml"
    file.write_text(text.replace("repeats: 5", "repeats: 500"))
    process = subprocess.Popen(
        [sys.executable, "-m", "quiver_lab", "run", str(file), "--out", str(tmp_path / "o")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list((tmp_path / "o" / "runs").glob("*/r*.json")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "--resume" in said
    assert "Traceback" not in said


def test_verdicts_of_the_published_values(lab: Lab) -> None:
    done = lab("verdicts", "slavik2025")
    assert done.returncode == 0
    assert "holds                kernel-drops-more-than-half" in done.stdout


def test_doctor_answers(lab: Lab) -> None:
    done = lab("doctor")
    assert done.returncode == 0
    assert "core" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("plan", "/nonexistent"), "No such file"),
        (("export", "/nonexistent", "--parquet", "x"), "is no campaign's folder"),
        (("verdicts", "nobody1999"), "one of slavik2025"),
        (("reproduce", "nobody1999", "--plan"), "one of slavik2025"),
        (("reproduce", "kosak2025"), "give --out"),
        (("reproduce", "kosak2025", "--plan", "--dut-cores", "a"), "numbers with commas"),
        (("reproduce", "kosak2025", "--plan", "--scale", "7"), "write it as 1/200"),
        (("reproduce", "kosak2025", "--plan", "--only", "x=1"), "key=value"),
    ],
)
def test_errors_are_one_line(lab: Lab, words: tuple[str, ...], says: str) -> None:
    done = lab(*words)
    assert done.returncode == 1
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_reproduction_says_what_it_takes_and_starts_nothing(lab: Lab, tmp_path: Path) -> None:
    done = lab("reproduce", "slavik2025", "--quick", "--plan", "--out", tmp_path / "o")
    assert done.returncode == 0, done.stderr
    assert "359 cells × 5 repeats" in done.stdout
    assert "10 workers and a main thread need 11 cores" in done.stdout
    assert "measured when the campaign begins" in done.stdout
    assert not (tmp_path / "o").exists()


def test_a_reproduction_goes_on_and_ends_with_its_page(lab: Lab, tmp_path: Path) -> None:
    text = campaign_text(design("kosak2025"), Options(testbed=SIMULATED, repeats=3))
    folder = tmp_path / "o"
    Store.create(folder, campaign.parse(text), text, facts.machine(), resume=False)
    assert lab("reproduce", "kosak2025", "--quick", "--out", folder).returncode == 1
    done = lab("reproduce", "kosak2025", "--quick", "--out", folder, "--resume", "--only", "ip=4", "--only", "workers=1")
    assert done.returncode == 0, done.stderr
    assert "holds                kernel-outperformed-by-an-order-of-magnitude" in done.stdout
    assert "50 cells" not in done.stdout
    assert (folder / "report" / "reproduction.html").exists()
    assert (folder / "report" / "report.html").exists()
    assert "absent" not in done.stderr
