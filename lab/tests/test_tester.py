"""How quiver-tester is driven: its command line, its answers, and what it does wrong."""

from __future__ import annotations

import json
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from quiver_lab import campaign, profiles
from quiver_lab.devices import base, router
from quiver_lab.measurer import Step, Tags
from quiver_lab.simulate import SimulatedDevice
from quiver_lab.tester import QuiverTester, TesterError, number, stepped, tagged
from test_campaign import BASE


def fake(folder: Path, body: str, grace_s: float = 120.0) -> QuiverTester:
    """A tester that is a shell script; it leaves its arguments in a file. Even a shell may take a while to be started."""
    program = folder / "quiver-tester"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {folder}/arguments\n{body}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return QuiverTester([str(program)], ["af-packet:a", "af-packet:b"], folder / "p.json", 64, "10Gbps", grace_s=grace_s)


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
        ("exit 4", "ended with status 4"),
        ("exit 3", "answer is none"),
        ("echo hello", "answer is none"),
        ("true", "answer is none"),
        ('echo \'{"schema": "quiver-trial/2"}\'', "answer is none"),
        ("sleep 600", "did not end within 0.6 s"),
    ],
)
def test_what_goes_wrong_is_one_line(tmp_path: Path, body: str, says: str) -> None:
    began = time.monotonic()
    grace_s = 0.5 if "sleep" in body else 120.0
    with pytest.raises(TesterError, match=says) as caught:
        fake(tmp_path, body.replace("sleep", "exec sleep"), grace_s).measure(1, 0.1)
    assert "\n" not in str(caught.value)
    assert time.monotonic() - began < 300


def test_a_trial_that_is_not_valid_is_an_answer_and_no_error(tmp_path: Path) -> None:
    document = {**json.loads(answer()), "valid": False, "reasons": ["left late"]}
    trial = fake(tmp_path, f"echo '{json.dumps(document)}'; exit 3").measure(1, 1)
    assert not trial.valid
    assert trial.reasons == ("left late",)


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


def test_patterns_of_the_2019_evaluation() -> None:
    def ip4(**changes: Any) -> dict[str, Any]:
        stream: dict[str, Any] = profiles.profile(cell(**changes))["streams"][0]
        # Addresses vary, and nothing else.
        assert stream["udp"] == {"src": 1025, "dst": 12}
        found: dict[str, Any] = stream["ipv4"]
        return found

    assert ip4(pattern="static") == {"src": "10.0.0.1", "dst": "10.1.0.1"}
    assert ip4(pattern="round-robin")["dst"] == {"increment": {"first": "10.1.0.1", "count": 255}}
    assert ip4(pattern="uniform")["src"]["random"]["last"] == "10.0.255.254"
    # With further routes it is those that are looked up.
    many = ip4(pattern="uniform", routes=130_000)["dst"]["random"]
    assert (many["first"], many["last"]) == ("20.0.0.1", "21.251.207.255")
    assert ip4(pattern="static", routes=1)["dst"] == "20.0.0.1"


def test_mix_is_a_third_each_of_two_families_and_bridging() -> None:
    streams = profiles.profile(cell(operation="mix"))["streams"]
    assert [(s["name"], s["size"]) for s in streams] == [("ip4", 64), ("ip6", 84), ("l2", 68)]
    assert all("share" not in s for s in streams)
    assert streams[2]["vlan"] == [{"id": profiles.MIX_TAG}]
    assert streams[2]["ethernet"] == {"src": profiles.STATIONS[0], "dst": profiles.STATIONS[1]}


def test_a_profile_with_sizes_of_its_own_is_given_none() -> None:
    tester = QuiverTester(["t"], ("a", "b"), Path("p"), None, "1Gbps")
    assert "--size" not in tester.arguments(1, 1)


def test_steps_are_bursts_one_after_the_other(tmp_path: Path) -> None:
    mix = {"schema": "quiver-profile/1", "name": "m", "streams": [{"name": "a", "share": 3}, {"name": "b", "size": 84}]}
    made = stepped(mix, [Step(1000, 2), Step(500, 4)], 64)
    assert [(s["name"], s["rate"], s["size"], s["burst"]["frames"], s.get("after")) for s in made["streams"]] == [
        ("a-0", "750pps", 64, 1500, None), ("a-1", "375pps", 64, 1500, "a-0"),
        ("b-0", "250pps", 84, 500, None), ("b-1", "125pps", 84, 500, "b-0"),
    ]  # fmt: skip
    assert all("share" not in s for s in made["streams"])
    tester = fake(tmp_path, f"echo '{answer()}'")
    tester.profile.write_text(json.dumps(mix))
    tester.measure_steps([Step(1000, 2), Step(500, 4)])
    words = (tmp_path / "arguments").read_text().split("\n")
    assert words[words.index("--profile") + 1] == str(tmp_path / "steps.json")
    assert words[words.index("--duration") + 1] == "6"
    assert json.loads((tmp_path / "steps.json").read_text()) == made


def test_tagged_frames_are_streams_of_their_own_in_the_last_part(tmp_path: Path) -> None:
    mix = {
        "schema": "quiver-profile/1",
        "name": "m",
        "streams": [{"name": "a", "share": 3, "ipv4": {}}, {"name": "b", "size": 84}],
    }
    made = tagged(mix, Tags(500, 60), 120, 64)
    assert made["streams"] == [
        {"name": "a", "share": 3, "ipv4": {}},
        {"name": "a-tagged", "ipv4": {}, "rate": "10pps", "size": 64, "start": "60s"},
        {"name": "b", "size": 84},
        {"name": "b-tagged", "size": 84, "rate": "10pps", "start": "60s"},
    ]
    by_card = tagged(mix, Tags(500, 60, "card"), 120, 64)["streams"]
    assert [s.get("timestamps") for s in by_card] == [None, "card", None, "card"]
    tester = fake(tmp_path, f"echo '{answer()}'")
    tester.profile.write_text(json.dumps(mix))
    tester.measure_tagged(1000, 120, Tags(500, 60))
    words = (tmp_path / "arguments").read_text().split("\n")
    assert words[words.index("--profile") + 1] == str(tmp_path / "tagged.json")
    assert words[words.index("--rate") + 1] == "1000pps"
    assert json.loads((tmp_path / "tagged.json").read_text()) == made


def test_a_reset_falls_into_the_trial(tmp_path: Path) -> None:
    # The tester ends when the device was reset, so it was reset before the end.
    tester = fake(tmp_path, f"while ! test -e {tmp_path}/reset; do sleep 0.01; done; echo '{answer()}'")
    with pytest.raises(TesterError, match="does not know how to reset"):
        tester.measure_with_reset(10, 5, 0.01)
    trial = replace(tester, reset=(tmp_path / "reset").touch).measure_with_reset(10, 5, 0.01)
    assert trial.received == 1000


def test_ports_ask_for_one_gateway() -> None:
    assert profiles.port_addresses(profiles.LEFT, ()) == ""
    assert profiles.port_addresses(profiles.LEFT, (6,)) == ",ip6=2001:2:0:1::2/64,gateway=2001:2:0:1::1"
    assert profiles.port_addresses(profiles.LEFT, (4, 6)).count("gateway=") == 1


def test_commands_of_bridging_mix_routes_and_loops() -> None:
    names = ("x", "y")
    bridge = router.scenario_commands(cell(operation="bridge"), names)
    assert "set interface l2 bridge y 1" in bridge
    assert f"l2fib add {profiles.STATIONS[1]} 1 y static" in bridge
    assert not [c for c in bridge if "ip" in c.split()]
    mix = router.scenario_commands(cell(operation="mix", link="memif"), names)
    assert "create sub-interfaces x 100" in mix
    assert "set interface ip address x 198.18.0.1/24" in mix
    assert "set interface ip address x 2001:2:0:1::1/64" in mix
    assert f"set ip neighbor y 2001:2:0:2::2 {profiles.TESTER_MACS[1]} static" in mix
    many = router.scenario_commands(cell(routes=130_000), names)
    assert "ip route add count 130000 20.0.0.0/24 via 198.19.0.2 y" in many
    assert router.experiment_commands(cell()) == []
    loops = router.experiment_commands(cell(vector=64, loops="4p0"))
    assert loops[:2] == ["set fusion off", "set vector-size 64"]
    assert "set node ip4-lookup multi-loop 4 prefetch 0" in loops


def test_cores_by_instance_and_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for n, cores in enumerate(("0-3,8", "4-7\n")):
        folder = tmp_path / f"devices/system/node/node{n}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cores)
    assert base.numa_nodes(tmp_path) == [{0, 1, 2, 3, 8}, {4, 5, 6, 7}]
    c = campaign.Campaign.model_validate(
        {
            "schema": "quiver-campaign/1", "name": "t", "quick": True, "testbed": {"dut_cores": [1, 2, 5]},
            "matrix": {"dut": ["quiver"], "procedure": ["p"]}, "procedures": {"p": {"kind": "throughput"}},
        }
    )  # fmt: skip
    nodes = base.numa_nodes(tmp_path)
    monkeypatch.setattr(base, "numa_nodes", lambda: nodes)
    assert base.cores_of(c, cell()) == (1, 2, 5)
    assert base.cores_of(c, cell(instance=1)) == (2, 5)
    assert base.cores_of(c, cell(numa="near")) == (1, 2)
    assert base.cores_of(c, cell(numa="far")) == (5,)
    assert "core instance 1 on the far" in (base.machine_absent(c, cell(numa="far", instance=1)) or "")
    assert base.machine_absent(c, cell()) is None
    monkeypatch.setattr(base, "numa_nodes", lambda: nodes[:1])
    assert base.machine_absent(c, cell(numa="far", instance=3)) == "this machine has one NUMA node"
