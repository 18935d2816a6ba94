"""Profiles of TRex as the tester's: what each kind of instruction becomes, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from quiver_lab import trex
from quiver_lab.cli import app
from quiver_lab.trex import api

SHIPPED = Path(__file__).parents[1] / "trex" / "slavik2025.py"


def write(folder: Path, body: str) -> Path:
    """A profile whose ``get_streams`` has this body."""
    file = folder / "p.py"
    head = "from trex_stl_lib.api import *\n\nclass P:\n    def get_streams(self, direction, tunables, **kwargs):\n"
    tail = "\n\ndef register():\n    return P()\n"
    file.write_text(head + indent(dedent(body), " " * 8) + tail)
    return file


def streams(folder: Path, body: str) -> tuple[list[dict[str, Any]], list[str]]:
    document, notes = trex.emit("p", trex.load(write(folder, body), 0), [])
    return document["streams"], notes


def one(folder: Path, program: str, packet: str = "Ether()/IP(src='10.0.0.1')/UDP(sport=5,dport=6)/('x'*60)") -> dict[str, Any]:
    """The stream of a packet with a field program."""
    (stream,), _ = streams(folder, f"return [STLStream(packet=STLPktBuilder(pkt={packet}, vm={program}))]")
    return stream


def test_the_shipped_listing_gives_both_streams_in_both_directions() -> None:
    document, notes = trex.emit("slavik2025", trex.load(SHIPPED, 0), trex.load(SHIPPED, 1))
    assert notes == []
    assert [s["name"] for s in document["streams"]] == ["heavy-left", "latency-left", "heavy-right", "latency-right"]
    heavy, latency = document["streams"][:2]
    assert heavy["ipv4"]["src"] == {"increment": {"first": "10.0.0.1", "last": "10.0.1.0"}}
    assert (heavy["size"], heavy["udp"], "rate" in heavy) == (64, {"src": 1025, "dst": 12}, False)
    assert (latency["rate"], latency["udp"]) == ("5000pps", {"src": 1234, "dst": 1234})
    back = document["streams"][2:]
    assert [(s["from"], s["ipv4"]["dst"]) for s in back] == [("right", "16.0.0.1")] * 2
    # What the tester ships is what is written here.
    shipped = Path(__file__).parents[2] / "apps" / "quiver-tester" / "profiles" / "slavik2025.yaml"
    assert yaml.safe_load(shipped.read_text()) == document
    wide = trex.load(SHIPPED, 0, ["--cache_size=65536", "--frame_size=512"])
    heavy = trex.emit("p", wide, [])[0]["streams"][0]
    assert (heavy["size"], heavy["ipv4"]["src"]["increment"]["last"]) == (512, "10.1.0.0")


def test_variables_become_fields_wherever_they_are_written(tmp_path: Path) -> None:
    counted = one(tmp_path, "[STLVmFlowVar('a', min_value=1, max_value=9, size=1, op='dec'), STLVmWrFlowVar('a', 'IP.src', 3)]")
    assert counted["ipv4"]["src"] == {"decrement": {"first": "10.0.0.9", "last": "10.0.0.1"}}
    above = one(tmp_path, "[STLVmFlowVar('a', min_value=1, max_value=3, size=1, op='inc'), STLVmWrFlowVar('a', 'IP.src', 1)]")
    assert above["ipv4"]["src"] == {"increment": {"first": "10.1.0.1", "last": "10.3.0.1", "step": 65536}}
    mac = one(tmp_path, "[STLVmFlowVar('a', min_value=1, max_value=3, size=2, op='random'), STLVmWrFlowVar('a', 10)]")
    assert mac["ethernet"]["src"] == {"random": {"first": "00:00:00:00:00:01", "last": "00:00:00:00:00:03"}}
    both = "[STLVmFlowVar('a', min_value='10.0.0.1', max_value='10.0.0.9', size=4, step=4), STLVmWrFlowVar('a', 'IP.src'), " \
        "STLVmWrFlowVar('a', 'IP.dst', add_val=256)]"  # fmt: skip
    read = one(tmp_path, both)
    assert read["ipv4"]["src"] == {"increment": {"first": "10.0.0.1", "last": "10.0.0.9", "step": 4}}
    assert read["ipv4"]["dst"] == {"increment": {"first": "10.0.1.1", "last": "10.0.1.9", "step": 4}}
    inner = one(
        tmp_path, "[STLVmFlowVar('a', min_value=5, max_value=9, size=2), STLVmWrFlowVar('a', 'IPv6.dst', offset_fixup=14)]",
        "Ether()/Dot1Q(vlan=3, prio=2)/IPv6(dst='2001:db8::')/TCP(flags='SA')",
    )  # fmt: skip
    assert inner["ipv6"]["dst"] == {"increment": {"first": "2001:db8::5", "last": "2001:db8::9"}}
    assert (inner["vlan"], inner["tcp"]["flags"]) == ([{"id": 3, "priority": 2}], ["syn", "ack"])


def test_a_cache_bounds_the_different_frames(tmp_path: Path) -> None:
    line = "STLVmFlowVar('a', min_value='10.0.0.0', max_value='10.255.255.255', op='{}'), STLVmWrFlowVar('a', 'IP.src')"
    counted = one(tmp_path, f"STLScVmRaw([{line.format('inc')}], cache_size=256)")
    assert counted["ipv4"]["src"] == {"increment": {"first": "10.0.0.0", "last": "10.0.0.255"}}
    drawn = one(tmp_path, f"STLScVmRaw([{line.format('random')}], cache_size=16)")
    assert len(drawn["ipv4"]["src"]) == 16
    again = one(tmp_path, f"STLScVmRaw([{line.format('random')}], cache_size=16)")
    assert again == drawn


def test_tuples_count_addresses_first(tmp_path: Path) -> None:
    read = one(
        tmp_path,
        "[STLVmTupleGen('t', ip_min='10.0.0.1', ip_max='10.0.0.4', port_min=1000, port_max=1999, limit_flows=8), "
        "STLVmWrFlowVar('t.ip', 'IP.src'), STLVmWrFlowVar('t.port', 'UDP.sport')]",
    )
    assert read["ipv4"]["src"] == {"increment": {"first": "10.0.0.1", "last": "10.0.0.4"}}
    assert read["udp"]["src"] == {"increment": {"first": 1000, "last": 1001, "every": 4}}


def test_bursts_and_streams_that_follow_one_another(tmp_path: Path) -> None:
    made, notes = streams(
        tmp_path,
        """
        pkt = STLPktBuilder(pkt=Ether()/IP()/UDP()/('x'*40))
        return STLProfile([
            STLStream(name='A', isg=10.0, packet=pkt, mode=STLTXSingleBurst(pps=10, total_pkts=5), next='B'),
            STLStream(name='B', self_start=False, packet=pkt,
                      mode=STLTXMultiBurst(pps=100, pkts_per_burst=4, ibg=2000000.0, count=5)),
            STLStream(name='C', self_start=False, packet=pkt),
            STLStream(name='D', packet=pkt, mode=STLTXCont(percentage=10)),
            STLStream(name='E', packet=pkt, mode=STLTXCont(bps_L2=1e9), flow_stats=STLFlowLatencyStats(pg_id=1)),
            STLStream(name='F', packet=pkt, mode=STLTXCont(pps=3)),
        ])""",
    )
    assert notes == ["stream C is left out: nothing starts it"]
    a, b, d, e, f = made
    assert (a["start"], a["rate"], a["burst"]) == ("10us", "10pps", {"frames": 5})
    assert (b["after"], b["burst"]) == ("A", {"frames": 4, "count": 5, "gap": "2000000us"})
    assert (d["rate"], e["rate"], f["share"]) == ("10%", "1000000000bps", 3.0)


ROUND = """
    pkt = STLPktBuilder(pkt=Ether()/IP()/UDP()/('x'*40))
    return STLProfile([
        STLStream(name='S0', isg=10.0, packet=pkt, mode=STLTXSingleBurst(pps=10, total_pkts=1), next='S1'),
        STLStream(name='S1', self_start=False, packet=pkt, mode=STLTXSingleBurst(pps=10, total_pkts=2), next='S2'{more}),
        STLStream(name='S2', self_start=False, packet=pkt, mode=STLTXSingleBurst(pps=10, total_pkts=3), next='{back}'{last}),
    ])"""


def round_of(tmp_path: Path, back: str, last: str = "", more: str = "") -> list[tuple[Any, ...]]:
    made, notes = streams(tmp_path, ROUND.format(back=back, last=last, more=more))
    assert notes == []
    return [(s["name"], s.get("after"), s.get("start"), s["burst"]) for s in made]


def test_streams_that_begin_again_send_in_each_others_gaps(tmp_path: Path) -> None:
    # 100, 200 and 300 ms and the first one's 10 us: a round of 600,010 us.
    assert round_of(tmp_path, "S0", last=", action_count=2") == [
        ("S0", None, "10us", {"frames": 1, "gap": "500010us", "count": 2}),
        ("S1", None, "100010us", {"frames": 2, "gap": "400010us", "count": 2}),
        ("S2", None, "300010us", {"frames": 3, "gap": "300010us", "count": 2}),
    ]
    # Without a number there is no end.
    assert [s[3] for s in round_of(tmp_path, "S0")] == [
        {"frames": 1, "gap": "500010us"}, {"frames": 2, "gap": "400010us"}, {"frames": 3, "gap": "300010us"},
    ]  # fmt: skip
    # Who stops the round in its middle has one turn more than those behind it.
    assert [s[3].get("count") for s in round_of(tmp_path, "S0", more=", action_count=3")] == [3, 3, 2]
    # The round may begin behind a stream that sends once.
    assert round_of(tmp_path, "S1") == [
        ("S0", None, "10us", {"frames": 1}),
        ("S1", "S0", None, {"frames": 2, "gap": "300000us"}),
        ("S2", "S0", "200000us", {"frames": 3, "gap": "200000us"}),
    ]
    # One turn, then nobody is started.
    made, notes = streams(tmp_path, ROUND.format(back="S0", last="", more=", action_count=1"))
    assert [s["name"] for s in made] == ["S0", "S1"]
    assert notes == ["stream S2 is left out: nothing starts it"]


def test_several_bursts_of_a_stream_that_begins_again_are_streams_of_their_own(tmp_path: Path) -> None:
    made, notes = streams(
        tmp_path,
        """
        pkt = STLPktBuilder(pkt=Ether()/IP()/UDP()/('x'*40))
        return STLProfile([
            STLStream(name='A', packet=pkt, mode=STLTXMultiBurst(pps=1000, pkts_per_burst=5, ibg=1000.0, count=2), next='A'),
        ])""",
    )
    # Bursts of 5 ms at 0 and 6 ms, again after 11 ms.
    assert [(s["name"], s.get("start"), s["burst"]) for s in made] == [
        ("A-1", None, {"frames": 5, "gap": "6000us"}),
        ("A-2", "6000us", {"frames": 5, "gap": "6000us"}),
    ]
    assert notes == ["stream A begins again with 2 bursts: each is a stream of its own"]


def test_sizes_vary_by_trimming_and_lengths_are_not_fields(tmp_path: Path) -> None:
    read = one(
        tmp_path,
        "[STLVmFlowVar('n', min_value=60, max_value=1000, size=2, op='random'), STLVmTrimPktSize('n'), "
        "STLVmWrFlowVar('n', 'IP.len', add_val=-14), STLVmWrFlowVar('n', 'UDP.len', add_val=-34)]",
    )
    assert read["size"] == {"random": {"min": 64, "max": 1004}}


def test_frames_too_short_for_a_signature_are_counted_only_or_made_longer(tmp_path: Path) -> None:
    syn = "STLStream(packet=STLPktBuilder(pkt=Ether()/IP()/TCP(flags='S')))"
    (alone,), notes = streams(tmp_path, f"return [{syn}]")
    assert (alone["size"], alone["signature"]) == (64, "none")
    assert "counted only" in notes[0]
    (first, _), notes = streams(tmp_path, f"return [{syn}, {syn}]")
    assert (first["size"], "signature" in first) == (76, False)
    assert notes == ["frames of 64 bytes have no room for a signature: 76 bytes"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return []", "gives no list of streams"),
        ("return 5/0", "ZeroDivisionError"),
        ("import scapy_of_old", "ModuleNotFoundError"),
        ("import argparse; argparse.ArgumentParser().parse_args(['--x'])", "does not take"),
        ("return STLProfile.load_pcap('x.pcap')", "quiver-tester import"),
        ("return [STLStream(packet=STLPktBuilder(pkt='x.pcap'))]", "reads captures"),
        ("return [STLStream(packet=STLPktBuilder(pkt=Ether()/IP()/UDP()/IP()))]", "headers Ether/IP/UDP/IP"),
        ("return [STLStream(packet=STLPktBuilder(pkt=Ether()/IP(frag=5)/UDP()))]", "fragments"),
        ("return [STLStream(packet=STLPktBuilder(pkt=Ether()/IP(speed=5)))]", "IP has no field speed"),
        ("return [STLStream(name='A', next='A', packet=STLPktBuilder(pkt=Ether()/IP()/UDP()))]", "has no end"),
        (
            "return [STLStream(name='A', next='A', mode=STLTXSingleBurst(percentage=5, total_pkts=2), "
            "packet=STLPktBuilder(pkt=Ether()/IP()/UDP()))]",
            "a part of a line's",
        ),
        ("return [STLStream(name='A', next='B', packet=STLPktBuilder(pkt=Ether()/IP()/UDP()))]", "which there is not"),
        (
            "vm = [STLVmFlowVar('a', size=1), STLVmWrFlowVar('a', 'IP.ttl')]\n"
            "return [STLStream(packet=STLPktBuilder(pkt=Ether()/IP()/UDP(), vm=vm))]",
            "no field that the tester varies",
        ),
        (
            "return [STLStream(packet=STLPktBuilder(pkt=Ether()/IP()/UDP(), vm=[STLVmWrFlowVar('a', 'IP.src')]))]",
            "no variable a",
        ),
        ("return [STLStream(packet=STLPktBuilder(pkt=Ether()/IP()/UDP(), vm=[STLVmFixIpv4('IP:1')]))]", "has no IP:1"),
    ],
)
def test_what_cannot_be_said_is_refused_in_one_line(tmp_path: Path, body: str, words: str) -> None:
    with pytest.raises((trex.LoadError, trex.EmitError)) as refused:
        streams(tmp_path, body)
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_names_of_trex_are_there_only_while_a_profile_runs(tmp_path: Path) -> None:
    before = set(sys.modules)
    streams(tmp_path, "return [STLStream(packet=STLPktBuilder(pkt=Ether()/IP()/UDP()))]")
    assert not [name for name in set(sys.modules) - before if name.startswith("trex")]
    assert set(api.__all__) <= set(dir(api))


def test_the_command_writes_a_profile_with_its_notes(tmp_path: Path) -> None:
    file = write(tmp_path, "return [STLStream(name='s', packet=STLPktBuilder(pkt=Ether()/IP()/TCP()))]")
    done = CliRunner().invoke(app, ["import-trex", str(file), "--out", str(tmp_path / "p.yaml")])
    assert done.exit_code == 0, done.output
    text = (tmp_path / "p.yaml").read_text()
    assert text.startswith("# Imported from p.py, a profile of TRex.\n# frames of 64 bytes")
    assert [s["name"] for s in yaml.safe_load(text)["streams"]] == ["s-left", "s-right"]
