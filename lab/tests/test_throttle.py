"""Throttled devices: what a share of a core is, that the hog leaves just that, and that such runs stay among themselves."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from quiver_lab import campaign, devices, facts, findings, runner, throttle
from quiver_lab.findings import Measured, Predicate
from quiver_lab.hog import LONGEST, Ledger
from quiver_lab.processes import CommandError
from quiver_lab.records import RunRecord
from quiver_lab.report import build, tables
from quiver_lab.reproduce import evidence
from quiver_lab.runner import Runner, plan
from quiver_lab.store import Store
from test_campaign import BASE, error_of
from test_campaign import text as campaign_text

CORE = max(os.sched_getaffinity(0))
OVERLOAD = {"kind": "r-plus", "offered": "10kpps", "duration_s": 2, "fractions": [0.5]}


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5, 0.9])
def test_late_wake_ups_do_not_change_the_share(share: float) -> None:
    """Timers are late by more than a window is long, now and then by a hundred: virtual time."""
    chance = random.Random(1)
    ledger = Ledger(share, 100_000)
    for n in range(20_000):
        late = 10_000_000 if n % 5_000 == 4_999 else round(chance.expovariate(1 / 50_000))
        own = 5_000
        held = max(0.0, ledger.woke(100_000 + late + own, own))
        ledger.held(round(held), round(held))
    had = ledger.account()["had"]
    assert had == pytest.approx(share, rel=0.05)
    assert ledger.account()["taken"] == 0
    assert ledger.longest_ns > 10_000_000


def test_a_machine_that_stood_still_does_not_hold_others_up_for_as_long() -> None:
    ledger = Ledger(0.1, 100_000)
    assert ledger.woke(10**9) == 4 * 100_000 * 9


def forwards(share: float, *, capacity: float, offered: float, ring: int, window_us: float) -> float:
    """Frames a second through a device with a ring that has its core in windows, in steps of a microsecond."""
    period = window_us / share
    waiting = done = 0.0
    steps = round(200 * period)
    for step in range(steps):
        waiting = min(ring, waiting + offered / 1e6)
        if step % period < window_us:
            sent = min(waiting, capacity / 1e6)
            waiting -= sent
            done += sent
    return done / steps * 1e6


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_windows_are_short_against_rings(share: float) -> None:
    """The docstring's rule: a ring of D frames does not run dry in a window where D >= capacity times window."""
    window = throttle.WINDOW_US
    for capacity, ring in ((2.5e6, 256), (10e6, 1024)):
        found = forwards(share, capacity=capacity, offered=capacity * share * 5, ring=ring, window_us=window)
        assert found == pytest.approx(capacity * share, rel=0.03)
    # Ten times as long, and the device would be called slower than its share.
    slow = forwards(0.1, capacity=2.5e6, offered=1.25e6, ring=256, window_us=10 * window)
    assert slow < 0.75 * 2.5e5


def need_fifo() -> None:
    if CORE == 0:
        pytest.skip("one core: nothing else would run beside the hog")
    if why := throttle.lacking():
        pytest.skip(why)


VICTIM = """
import os, sys, time
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
print("ready", flush=True)
account = f"/proc/{int(sys.stdin.readline())}/schedstat"
hog = lambda: int(open(account).read().split()[0]) / 1e9
began, cpu, hogged = time.monotonic(), time.process_time(), hog()
while time.process_time() - cpu < float(sys.argv[2]) and time.monotonic() < began + 30:
    pass
print(time.process_time() - cpu, hog() - hogged, flush=True)
"""
"""A process whose work is known: it takes all that it gets of a core. Its low real-time priority is below the hog's and above
all other work of the machine, so that other load changes nothing; it takes the core for a few hundredths of a second only. It
reads the hog's account itself, before others come to it."""


@pytest.mark.alone
@pytest.mark.parametrize("share", [0.2, 0.5])
def test_a_process_gets_its_share_of_a_core_whatever_else_runs(share: float) -> None:
    """Judged by processor time, of the victim and of the hog: no clock on the wall."""
    need_fifo()
    # A virtual machine may lose its core meanwhile, to the hog's or the victim's cost. The account tells, as of a trial,
    # which is made again then; so is this. What the account calls undisturbed must be what the processor's time says.
    for _ in range(ROUNDS):
        used, hogged, account = one_round(share)
        if not throttle.disturbed(account, share):
            break
    else:
        pytest.fail(f"disturbed in each of {ROUNDS} rounds: {account}")
    assert used / (used + hogged) == pytest.approx(share, rel=0.15)
    (of,) = account.values()
    # In windows, of which late wake-ups make some longer than they should be.
    assert of["windows"] * 2 * LONGEST * throttle.WINDOW_US / 1e6 > used


ROUNDS = 200
"""A fraction of a second each; on a quiet machine the first one does."""


def one_round(share: float) -> tuple[float, float, throttle.Account]:
    """Processor time of the victim and of the hog meanwhile, and the hog's account."""
    busy = 0.06 * share
    with subprocess.Popen(
        [sys.executable, "-c", VICTIM, str(CORE), str(busy)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "ready\n"
        with throttle.held((CORE,), share, 30) as account:
            (pid,) = children()
            assert victim.stdin is not None
            victim.stdin.write(f"{pid}\n")
            victim.stdin.flush()
            used, hogged = map(float, victim.stdout.readline().split())
    assert used >= busy * 0.99
    return used, hogged, account


def children() -> list[int]:
    """Hogs that this process started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            ppid = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if ppid == os.getpid() and b"hog.py" in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


@pytest.mark.alone
def test_the_hog_ends_with_the_block_and_with_an_error_in_it() -> None:
    need_fifo()
    with throttle.held((CORE,), 0.5, 1) as account:
        (pid,) = children()
    assert not Path(f"/proc/{pid}").exists()
    assert account
    pids = []

    def fails() -> None:
        with throttle.held((CORE,), 0.5, 1):
            pids.extend(children())
            raise RuntimeError("in the block")

    with pytest.raises(RuntimeError, match="in the block"):
        fails()
    assert [Path(f"/proc/{pid}").exists() for pid in pids] == [False]


KILLED = """
import sys, time
from quiver_lab import throttle
sys.path.insert(0, sys.argv[2])
from test_throttle import children
with throttle.held((int(sys.argv[1]),), 0.5, 60):
    print(*children(), flush=True)
    time.sleep(60)
"""


@pytest.mark.alone
def test_the_hog_ends_with_the_lab_even_by_kill_9() -> None:
    need_fifo()
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(CORE), str(Path(__file__).parent)], stdout=subprocess.PIPE, text=True
    ) as lab:
        assert lab.stdout is not None
        hog = os.pidfd_open(int(lab.stdout.readline()))
        lab.send_signal(signal.SIGKILL)
    try:
        # A process that ended makes its descriptor readable; the bound is for a hog that stays.
        assert select.select([hog], [], [], 30)[0]
    finally:
        os.close(hog)


@pytest.mark.alone
def test_a_hog_that_ended_too_soon_is_an_error() -> None:
    need_fifo()

    def killed() -> None:
        with throttle.held((CORE,), 0.5, 1):
            (pid,) = children()
            ended = os.pidfd_open(pid)
            os.kill(pid, signal.SIGKILL)
            assert select.select([ended], [], [], 30)[0]
            os.close(ended)

    with pytest.raises(CommandError, match="ended before the trial did"):
        killed()


def account(had: float, taken: float = 0.0) -> throttle.Account:
    return {"1": {"had": had, "taken": taken, "windows": 10.0, "longest_us": 100.0}}


@pytest.mark.parametrize(
    ("had", "taken", "says"),
    [
        (0.1, 0.0, ""),
        (0.109, 0.009, ""),
        (0.112, 0.0, "the device had 11.2% of core 1, not 10.0%"),
        (0.085, 0.0, "the device had 8.5% of core 1, not 10.0%"),
        (0.1, 0.011, "others had 1.1% of core 1 in the time that the throttle held it"),
    ],
)
def test_a_trial_with_another_share_is_disturbed(had: float, taken: float, says: str) -> None:
    assert "; ".join(throttle.disturbed(account(had, taken), 0.1)) == says


@pytest.mark.parametrize("share", [0, 0.04, 1.1, "half", -1])
def test_wrong_shares_are_one_line_with_the_place(share: object) -> None:
    assert "c.yaml: matrix.throttle.0: " in error_of(matrix={**BASE["matrix"], "throttle": [share]})


def test_cells_that_are_not_throttled_are_called_as_before() -> None:
    c = campaign.parse(campaign_text(matrix={**BASE["matrix"], "dut": ["a"], "throttle": [1, 0.1]}))
    usual, throttled = c.cells()
    assert usual.slug == "a-none-one-way-w1-64B-v4-r0-s254-p"
    assert throttled.slug == "a-none-one-way-w1-64B-v4-r0-s254-throttle0.1-p"
    old = {k: v for k, v in usual.model_dump().items() if k != "throttle"}
    assert campaign.Cell.model_validate(old) == usual
    assert (usual.as_text()["throttle"], throttled.as_text()["throttle"]) == ("1", "0.1")


def local(folder: Path, *, procedure: dict[str, Any] | None = None, able: bool = True, **bed: Any) -> str | None:
    c = campaign.parse(
        campaign_text(
            testbed={"kind": "local", **bed}, matrix={"dut": ["quiver"], "throttle": [0.06], "procedure": ["p"]},
            procedures={"p": procedure or OVERLOAD},
        )
    )  # fmt: skip
    (cell,) = c.cells()
    return throttle.absent(c, cell, able=able, folder=folder)


def test_what_cannot_be_throttled_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(throttle, "lacking", str)
    (tmp_path / "sched_rt_period_us").write_text("1000000\n")
    (tmp_path / "sched_rt_runtime_us").write_text("950000\n")
    assert local(tmp_path) is None
    assert local(tmp_path, able=False) == "the lab does not throttle this device"
    said = local(tmp_path, procedure={"kind": "pdv", "rate": "10kpps", "duration_s": 2})
    assert said == "a throttled device waits for its core: 'pdv' would measure that"
    (tmp_path / "sched_rt_runtime_us").write_text("900000\n")
    assert str(local(tmp_path)).startswith("the kernel keeps 10% of each core from real-time processes")
    (tmp_path / "sched_rt_runtime_us").write_text("-1\n")
    assert local(tmp_path) is None
    monkeypatch.setattr(throttle, "lacking", lambda: "no right")
    assert local(tmp_path) == "no right"


def test_a_plan_names_devices_that_are_not_throttled() -> None:
    c = campaign.parse(
        campaign_text(
            testbed={"kind": "simulated", "devices": {"a": {"capacity_pps": 1000}}},
            matrix={"dut": ["a"], "link": ["none"], "throttle": [0.5], "procedure": ["p", "q"]},
            procedures={"p": BASE["procedures"]["p"], "q": {"kind": "latency", "search_s": 2, "duration_s": 2}},
        )
    )  # fmt: skip
    assert [str(p.absent)[:40] for p in plan(c)] == ["None", "a throttled device waits for its core: '"]
    assert {name for name, kind in devices.LOCAL.items() if kind.throttles} == {
        "quiver", "fdio-vpp", "linux", "linux-tuned", "xdp",
    }  # fmt: skip


def run(folder: Path, **changes: Any) -> tuple[Store, list[RunRecord]]:
    text = campaign_text(matrix={**BASE["matrix"], "throttle": [1, 0.1]}, procedures={"p": OVERLOAD}, **changes)
    store = Store.create(folder, campaign.parse(text), text, facts.machine(), resume=False)
    Runner(store).run()
    return store, list(store.runs())


def test_a_device_of_known_capacity_forwards_its_share_and_is_compared_with_throttled_ones_only(tmp_path: Path) -> None:
    store, records = run(tmp_path / "o", repeats=5)
    rates = {(r.run.cell.dut, r.run.cell.throttle): r.values["receive_rate_pps"] for r in records}
    assert rates == {("a", 1): 1000, ("a", 0.1): 100, ("b", 1): 2000, ("b", 0.1): 200}
    for r in records:
        throttled = r.run.cell.throttle != 1
        assert any("latency" in q for q in r.values) != throttled
        assert any(n.startswith("throttled: ") for n in r.notes) == throttled
    versus = tables.between_devices(tables.rows(store))
    assert sorted((v.cell.throttle, v.comparison.median_a, v.comparison.median_b) for v in versus) == [
        (0.1, 100, 200), (1, 1000, 2000),
    ]  # fmt: skip
    assert "throttle0.1" in build(store, tmp_path / "page").read_text(encoding="utf-8")


def test_trials_that_had_another_share_are_made_again_though_they_lost_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search counts a disturbed trial that lost nothing, but not where the device had more than its share."""
    monkeypatch.setattr(throttle, "disturbed", lambda _account, share: ("too much",) if share != 1 else ())
    text = campaign_text(
        matrix={**BASE["matrix"], "dut": ["a"], "throttle": [1, 0.1]}, odd_runs={"repeat_at_most": 0}, repeats=1
    )
    store = Store.create(tmp_path / "o", campaign.parse(text), text, facts.machine(), resume=False)
    runner.Runner(store).run()
    usual, throttled = sorted(store.runs(), key=lambda r: -r.run.cell.throttle)
    assert usual.valid
    assert usual.values["throughput_pps"] == 1000
    assert not throttled.valid
    assert throttled.values["throughput_pps"] is None


def measured(**throttles: str) -> list[Measured]:
    keys = {"operation": "one-way"}
    return [
        Measured({**keys, "dut": dut, **({"throttle": t} if t else {})}, "loss_percent", (x, x * 1.01, x * 0.99, x, x))
        for (dut, t), x in zip(throttles.items(), (10.0, 50.0), strict=True)
    ]


def judged(values: list[Measured], **where: str) -> findings.Verdict:
    p = {"quantity": "loss_percent", "left": {"dut": "a"}, "right": {"dut": "b"}, "at_most": 0.5, "where": where}
    finding = findings.Finding.model_validate(
        {"id": "f", "section": "1", "text": "t", "seed": "000", "line": 1, "predicate": p}
    )
    return findings.judge(finding, values).verdict


def test_verdicts_never_put_throttled_and_others_in_one_ratio() -> None:
    none, holds = findings.Verdict.CANNOT_BE_TOLD, findings.Verdict.HOLDS
    assert judged(measured(a="", b="")) is holds
    assert judged(measured(a="0.1", b="")) is none
    assert judged(measured(a="", b="0.1")) is none
    # Two that are throttled alike, where a sentence asks for them.
    assert judged(measured(a="0.1", b="0.1")) is none
    assert judged(measured(a="0.1", b="0.1"), throttle="0.1") is holds
    for key in ("left", "right", "ignore"):
        part: Any = ["throttle"] if key == "ignore" else {"throttle": 0.1}
        wrong = {"quantity": "q", "left": {"dut": "a"}, "at_least": 1, key: part}
        with pytest.raises(ValueError, match="'throttle' stands in 'where' alone"):
            Predicate.model_validate(wrong)


def test_results_of_a_throttled_device_carry_it_into_a_papers_keys(tmp_path: Path) -> None:
    from quiver_lab.reproduce import DESIGNS  # noqa: PLC0415  (only here)

    store, _ = run(tmp_path / "o", repeats=1)
    keys = [k.keys.get("throttle") for k in evidence.known_cells(store, DESIGNS["slavik2025"])]
    assert sorted(map(str, keys)) == ["0.1", "0.1", "None", "None"]
