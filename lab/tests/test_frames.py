"""The tester's frames against scapy, which takes them apart and computes every length and checksum again.

Profiles are drawn; ``quiver-tester frames`` writes what a trial would send. scapy is GPL: only tests import it.
"""

from __future__ import annotations

import ipaddress
import os
import struct
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quiver_lab.processes import find

COUNT = 24
FIRST = 0xFFFFFF00
"""Number of the first frame of a stream: numbers wrap in every trial."""
MAC = (1 << 48) - 1


@pytest.fixture(scope="session")
def scapy() -> Any:
    """Scapy's names; skips, visibly, where it is not installed."""
    return pytest.importorskip("scapy.all", reason="scapy is not installed")


@pytest.fixture(scope="session")
def tester() -> str:
    """The program; skips, visibly, where it has not been built."""
    program = find("quiver-tester", {})
    if program is None:
        if os.environ.get("QUIVER_CI") == "1":
            pytest.fail("quiver-tester is not here")
        pytest.skip("quiver-tester is not here (cargo build -p quiver-tester, or set QUIVER_TESTER)")
    return program


def frames(tester: str, scapy: Any, profile: dict[str, Any], *words: str) -> list[tuple[int, bytes]]:
    """What a profile sends: departure in ns, and the frame without FCS."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "p.yaml", Path(folder) / "out.pcap"
        file.write_text(yaml.safe_dump(profile))
        command = [tester, "frames", "--profile", str(file), "--out", str(out), "--count", str(COUNT), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        with scapy.RawPcapReader(str(out)) as reader:
            nano = 1 if reader.nano else 1000
            return [(m.sec * 10**9 + m.usec * nano, bytes(b)) for b, m in reader]


Model = Callable[[int, int], bool]
"""Whether the frame of a number may have a value."""


@st.composite
def fields(draw: st.DrawFn, most: int, show: Callable[[int], Any]) -> tuple[Any, Model]:
    """A field of the profile, and a slow model of its values."""
    kind = draw(st.sampled_from(["fixed", "list", "increment", "decrement", "random", "pick"]))
    values = st.integers(0, most)
    if kind == "fixed":
        value = draw(values)
        return show(value), lambda n, v: v == value
    if kind in {"list", "pick"}:
        some = draw(st.lists(values, min_size=1, max_size=7))
        if kind == "list":
            return [show(v) for v in some], lambda n, v: v == some[n % len(some)]
        return {"pick": {"values": [show(v) for v in some], "seed": 5}}, lambda n, v: v in some
    low, high = sorted((draw(values), draw(values)))
    step = draw(st.integers(1, 1 << draw(st.integers(0, min(62, most.bit_length())))))
    if kind == "random":
        section = {"first": show(low), "last": show(high), "step": step, "seed": draw(st.integers(0, 1 << 63))}
        return {"random": section}, lambda n, v: low <= v <= high and (v - low) % step == 0
    every = draw(st.integers(1, 5))
    # So few values that they come round again now and then.
    if draw(st.booleans()):
        high = min(high, low + step * draw(st.integers(0, 5)))
    turns = (high - low) // step + 1
    first, last = (low, high) if kind == "increment" else (high, low)
    sign = 1 if kind == "increment" else -1
    section = {"first": show(first), "last": show(last), "step": step, "every": every}
    return {kind: section}, lambda n, v: v == first + sign * (n // every % turns) * step


def mac(value: int) -> str:
    return ":".join(f"{b:02x}" for b in value.to_bytes(6))


def v4(value: int) -> str:
    return str(ipaddress.IPv4Address(value))


def v6(value: int) -> str:
    return str(ipaddress.IPv6Address(value))


@st.composite
def streams(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Model], bool]:
    """A stream with as many varying fields as it has, and their models by the names that scapy gives them."""
    models: dict[str, Model] = {}
    stream: dict[str, Any] = {"name": "s", "seed": draw(st.integers(0, 1 << 63))}

    def field(name: str, most: int, show: Callable[[int], Any]) -> Any:
        value, models[name] = draw(fields(most, show))
        return value

    stream["ethernet"] = {key: field(f"Ether.{key}", MAC, mac) for key in ("src", "dst")}
    tags = draw(st.integers(0, 2))
    stream["vlan"] = [{"id": field(f"tag{k}", 4094, int), "priority": draw(st.integers(0, 7))} for k in range(tags)]
    six = draw(st.booleans())
    most, show = ((1 << 128) - 1, v6) if six else ((1 << 32) - 1, v4)
    ip = {key: field(f"IP.{key}", most, show) for key in ("src", "dst")}
    stream["ipv6" if six else "ipv4"] = {**ip, "ttl": draw(st.integers(1, 255)), "dscp": draw(st.integers(0, 63))}
    l4 = draw(st.sampled_from(["udp", "tcp", "icmp"]))
    if l4 == "icmp":
        stream["icmp"] = {"id": draw(st.integers(0, 65535))}
    else:
        stream[l4] = {key: field(f"L4.{key}", 65535, int) for key in ("src", "dst")}
    stream["size"] = draw(st.one_of(st.integers(110, 1518), st.lists(st.integers(110, 9216), min_size=1, max_size=5)))
    return stream, models, six


def rebuilt(scapy: Any, frame: bytes) -> bytes:
    """The frame as scapy makes it when it has to find lengths and checksums itself."""
    packet = scapy.Ether(frame)
    for kind, names in (
        ("IP", ("len", "chksum", "ihl")), ("IPv6", ("plen",)), ("UDP", ("len", "chksum")), ("TCP", ("chksum", "dataofs")),
        ("ICMP", ("chksum",)), ("ICMPv6EchoRequest", ("cksum",)),
    ):  # fmt: skip
        layer = getattr(scapy, kind)
        if packet.haslayer(layer):
            for name in names:
                delattr(packet[layer], name)
    return bytes(packet)


def read(scapy: Any, frame: bytes, six: bool) -> dict[str, int]:
    """The values of a frame by the names of the models."""
    packet = scapy.Ether(frame)
    found = {f"Ether.{key}": int(getattr(packet, key).replace(":", ""), 16) for key in ("src", "dst")}
    at, k = packet.payload, 0
    while isinstance(at, scapy.Dot1Q):
        found[f"tag{k}"] = at.vlan
        at, k = at.payload, k + 1
    assert isinstance(at, scapy.IPv6 if six else scapy.IP)
    for key in ("src", "dst"):
        found[f"IP.{key}"] = int(ipaddress.ip_address(getattr(at, key)))
    if isinstance(at.payload, (scapy.UDP, scapy.TCP)):
        found["L4.src"], found["L4.dst"] = at.payload.sport, at.payload.dport
    return found


@settings(
    max_examples=120,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(made=streams())
def test_fields_lengths_and_checksums_are_those_of_scapy(tester: str, scapy: Any, made: Any) -> None:
    stream, models, six = made
    sent = frames(tester, scapy, {"name": "p", "streams": [stream]})
    assert len(sent) == COUNT
    sizes = stream["size"] if isinstance(stream["size"], list) else [stream["size"]]
    for n, (time, frame) in enumerate(sent):
        assert len(frame) + 4 == sizes[n % len(sizes)]
        assert rebuilt(scapy, frame) == frame, scapy.Ether(frame).show(dump=True)
        values = read(scapy, frame, six)
        assert set(values) == set(models)
        wrong = {name: value for name, value in values.items() if not models[name](n, value)}
        assert not wrong, f"frame {n}: {wrong}"
        magic, _, _, number, sequence, stamp = struct.unpack("!BBHHIQ", frame[-18:])
        assert (magic, number, sequence, stamp) == (0xA9, 0, (FIRST + n) % 2**32, time)
        # The rate is 1,000 a second.
        assert time == n * 10**6


def test_tuples_stay_together(tester: str, scapy: Any) -> None:
    values = [{"src": f"10.0.0.{n}", "dst": f"10.1.0.{9 - n}", "src_port": 1000 + n, "dst_port": 2000 - n} for n in range(5)]
    for order in ("turns", "random"):
        stream = {"name": "s", "size": 80, "ipv4": {}, "tcp": {}, "tuples": {"values": values, "order": order, "seed": 3}}
        sent = [read(scapy, frame, False) for _, frame in frames(tester, scapy, {"name": "p", "streams": [stream]})]
        have = [(f["IP.src"] & 255, 9 - (f["IP.dst"] & 255), f["L4.src"] - 1000, 2000 - f["L4.dst"]) for f in sent]
        assert all(len(set(numbers)) == 1 for numbers in have)
        if order == "turns":
            assert [numbers[0] for numbers in have] == [n % 5 for n in range(COUNT)]


def test_popular_prefixes_come_from_a_route_file_beside_the_profile(tester: str, scapy: Any, tmp_path: Path) -> None:
    routes = tmp_path / "routes.txt"
    routes.write_text(
        "# most popular first\n10.0.0.0/8\nip route add 192.0.2.0/24 via 198.18.0.1\n2001:db8::/32\n203.0.113.7/32\n"
    )
    stream = {"name": "s", "size": 64, "ipv4": {"dst": {"zipf": {"routes": str(routes), "exponent": 1}}}, "udp": {}}
    sent = frames(tester, scapy, {"name": "p", "streams": [stream]})
    nets = [ipaddress.ip_network(net) for net in ("10.0.0.0/8", "192.0.2.0/24", "203.0.113.7/32")]
    hits = [sum(ipaddress.ip_address(frame[30:34]) in net for _, frame in sent) for net in nets]
    assert sum(hits) == COUNT
    assert hits[0] > 0


def test_a_capture_of_frames_is_imported_as_the_frames_that_it_has(tester: str, scapy: Any, tmp_path: Path) -> None:
    capture, profile = tmp_path / "c.pcap", tmp_path / "p.yaml"
    packets = [
        scapy.Ether() / scapy.IP(src=f"10.0.0.{n}", dst="10.1.0.1", ttl=7) / scapy.UDP(sport=n, dport=9) / (b"x" * (30 + n))
        for n in range(1, 6)
    ]
    scapy.wrpcap(str(capture), packets)
    subprocess.run([tester, "import", str(capture), "--out", str(profile)], check=True)
    sent = [frame for _, frame in frames(tester, scapy, yaml.safe_load(profile.read_text()))]
    for n, frame in enumerate(sent):
        want = bytes(packets[n % 5])
        assert len(frame) == len(want)
        assert (frame[14:16], frame[22:24], frame[26:38]) == (want[14:16], want[22:24], want[26:38])
