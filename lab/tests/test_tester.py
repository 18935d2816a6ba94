"""How quiver-tester is driven: its command line, its answers, and what it does wrong."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path

import pytest
import yaml

from quiver_lab import campaign, profiles
from quiver_lab.simulate import SimulatedDevice
from quiver_lab.tester import QuiverTester, TesterError, number
from test_campaign import BASE


def fake(folder: Path, body: str) -> QuiverTester:
    """A tester that is a shell script; it leaves its arguments in a file."""
    program = folder / "quiver-tester"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/arguments\n{body}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return QuiverTester([str(program)], ["af-packet:a", "af-packet:b"], folder / "p.json", 64, "10Gbps", grace_s=0.5)


def answer() -> str:
    trial = SimulatedDevice(capacity_pps=1000).measure(500, 2)
    return json.dumps(trial.model_dump(mode="json", by_alias=True))


def test_command_line_is_the_contracts(tmp_path: Path) -> None:
    tester = fake(tmp_path, f"echo sending; echo '{answer()}'")
    trial = tester.measure(123456.75, 2)
    assert trial.received == 1000
    assert (tmp_path / "arguments").read_text().split("\n")[:-1] == [
        "trial", "--port", "af-packet:a", "--port", "af-packet:b", "--profile", str(tmp_path / "p.json"),
        "--rate", "123456.75pps", "--size", "64", "--duration", "2", "--line-rate", "10Gbps", "--json",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "text"), [(2.0, "2"), (0.5, "0.5"), (14_880_952.380952, "14880952.380952"), (1e-4, "0.0001")]
)
def test_numbers_have_no_exponent(value: float, text: str) -> None:
    assert number(value) == text


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("echo 'profile p.json: no streams' >&2; exit 1", "profile p.json: no streams"),
        ("exit 3", "ended with status 3"),
        ("echo hello", "answer is none"),
        ("true", "answer is none"),
        ('echo \'{"schema": "quiver-trial/2"}\'', "answer is none"),
        ("sleep 60", "did not end within 0.6 s"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, body: str, says: str) -> None:
    began = time.monotonic()
    with pytest.raises(TesterError, match=says) as caught:
        fake(tmp_path, body.replace("sleep", "exec sleep")).measure(1, 0.1)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 30


def test_unknown_keys_of_an_answer_are_kept(tmp_path: Path) -> None:
    document = json.loads(answer())
    document["later"] = {"x": 1}
    # Frames of one interval arrive in the next.
    document["directions"][0]["series"] = [{"t_s": 0.1, "sent": 5, "received": 6, "lost": -1}]
    document["directions"][0]["also"] = 2
    trial = fake(tmp_path, f"echo '{json.dumps(document)}'").measure(1, 1)
    again = trial.model_dump(mode="json", by_alias=True)
    assert again["later"] == {"x": 1}
    assert again["directions"][0]["also"] == 2


def cell(**keys: object) -> campaign.Cell:
    text = yaml.safe_dump({**BASE, "matrix": {**BASE["matrix"], "dut": ["a"]}})
    return next(iter(campaign.parse(text).cells())).model_copy(update=keys)


def test_profiles_say_what_the_cell_says() -> None:
    plain = profiles.profile(cell())
    assert plain["streams"][0]["udp"] == {}  # ports by RFC 4814 are the tester's default
    assert plain["streams"][0]["ipv4"]["src"] == {"increment": {"first": "10.0.0.1", "count": 254}}
    assert not plain["bidirectional"]
    assert profiles.profile(cell(operation="bidirectional"))["bidirectional"]
    nat = profiles.profile(cell(operation="nat", sources=65_536))["streams"][0]
    # As many sessions as sources; the two addresses of a /16 that are none are left out.
    assert nat["udp"] == {"src": 1025, "dst": 12}
    assert nat["ipv4"]["src"]["increment"]["count"] == 65_534
    assert profiles.profile(cell(operation="cross-connect"))["streams"][0]["ethernet"] == {"dst": "02:00:00:00:00:02"}
    six = profiles.profile(cell(ip=6))["streams"][0]
    assert six["ipv6"]["dst"] == "2001:2:0:b::1"
    assert "ipv4" not in six


def test_further_routes_are_none_of_the_traffics() -> None:
    routes = profiles.extra_routes(1000)
    assert len(set(routes)) == 1000
    assert routes[0] == "20.0.0.0/24"
    assert routes[-1] == "20.3.231.0/24"
