#!/usr/bin/env python3
"""A slow tester with quiver-tester's command line, for tests of the adapters only: raw sockets, IPv4 and IPv6, UDP.

It answers and asks for neighbours, counts by sequence number what comes back, and tells what it could not send. Behind a
gateway only that counts which a router has made of it: one hop less, a header that adds up, and its own link address.
"""

from __future__ import annotations

import argparse
import ipaddress
import json
import select
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

MAGIC = b"lab-test"
OUTGOING = 4
HOPS = 64
CHECK_S = 1.0
"""Shorter trials are the lab's checks of connectivity: what fails of these is asked for again, several times."""
PATIENCE_S = 12.0
"""For how long a machine that is busy with other things may hold anybody up, tester or device, in a trial that counts."""
CHECK_PATIENCE_S = 2.0


@dataclass
class Port:
    """One port and what it counted."""

    text: str
    name: str = ""
    ip4: str | None = None
    ip6: str | None = None
    gateway: str | None = None
    peer: bytes | None = None
    seen: set[int] = field(default_factory=set)
    delays: list[int] = field(default_factory=list)
    sent: int = 0
    intended: int = 0

    def __post_init__(self) -> None:
        device, *keys = self.text.split(",")
        driver, self.name = device.split(":", 1)
        if driver != "af-packet":
            sys.exit(f"port {self.text}: only af-packet here")
        values = dict(k.split("=", 1) for k in keys)
        self.ip4 = values.get("ip4", "").split("/")[0] or None
        self.ip6 = values.get("ip6", "").split("/")[0] or None
        self.gateway = values.get("gateway")
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((self.name, 0))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 23)
        self.mac = self.socket.getsockname()[4]

    def arp(self, operation: int, target_mac: bytes, target: str) -> None:
        """Ask or answer."""
        assert self.ip4 is not None
        to = target_mac if operation == 2 else b"\xff" * 6
        body = struct.pack("!HHBBH", 1, 0x0800, 6, 4, operation) + self.mac + socket.inet_aton(self.ip4)
        body += (target_mac if operation == 2 else bytes(6)) + socket.inet_aton(target)
        self.socket.send((to + self.mac + b"\x08\x06" + body).ljust(60, b"\0"))

    def ask(self) -> None:
        """Ask for the gateway's link address."""
        assert self.gateway is not None
        if ":" not in self.gateway:
            self.arp(1, b"", self.gateway)
            return
        target = socket.inet_pton(socket.AF_INET6, self.gateway)
        group = socket.inet_pton(socket.AF_INET6, "ff02::1:ff00:0")[:13] + target[13:]
        self.neighbour(135, target, b"\x33\x33" + group[12:], group, 1)

    def neighbour(self, kind: int, target: bytes, to_mac: bytes, to: bytes, option: int) -> None:
        """A neighbour solicitation (135) or advertisement (136, solicited and overriding)."""
        assert self.ip6 is not None
        own = socket.inet_pton(socket.AF_INET6, self.ip6)
        flags = 0x60000000 if kind == 136 else 0
        rest = struct.pack("!I", flags) + target + bytes([option, 1]) + self.mac
        total = checksum(own + to + struct.pack("!II", 32, 58) + bytes([kind, 0, 0, 0]) + rest)
        head = struct.pack("!IHBB", 6 << 28, 32, 58, 255) + own + to
        self.socket.send(to_mac + self.mac + b"\x86\xdd" + head + struct.pack("!BBH", kind, 0, total) + rest)

    def hear(self, frame: bytes) -> None:
        """What a station says that speaks IPv6 on the link."""
        assert self.ip6 is not None
        kind, target = frame[54], frame[62:78]
        if kind == 135 and target == socket.inet_pton(socket.AF_INET6, self.ip6):
            self.neighbour(136, target, frame[6:12], frame[22:38], 2)
        elif kind == 136 and self.gateway and target == socket.inet_pton(socket.AF_INET6, self.gateway):
            # RFC 4861, 7.1.2: nobody off the link can have sent it, and it adds up.
            pseudo = frame[22:54] + struct.pack("!II", len(frame) - 54, 58)
            if frame[21] == 255 and checksum(pseudo + frame[54:]) == 0 and frame[78:80] == b"\x02\x01":
                self.peer = frame[80:86]

    def link_addresses(self) -> bytes:
        """Destination and source of what it sends."""
        return (self.peer or b"\x02" + bytes(5)) + bytes(self.mac)

    def routed(self, frame: bytes, hops: int) -> bool:
        """Whether a frame is as its way leaves it: through a router, or unchanged."""
        if self.gateway is None:
            return hops == HOPS
        return hops == HOPS - 1 and frame[:6] == self.mac and frame[6:12] == self.peer

    def count(self, mark: bytes) -> None:
        """Note one that came."""
        number, stamp = struct.unpack("!IQ", mark)
        self.seen.add(number)
        self.delays.append(time.monotonic_ns() - stamp)

    def receive(self) -> None:
        """Take everything that is there."""
        while select.select([self.socket], [], [], 0)[0]:
            frame, address = self.socket.recvfrom(10_000)
            if address[2] == OUTGOING:
                continue
            if frame[12:14] == b"\x08\x06" and self.ip4 is not None:
                operation, sender_mac, sender, target = struct.unpack("!6xH6s4s6x4s", frame[14:42])
                if target == socket.inet_aton(self.ip4):
                    if operation == 1:
                        self.arp(2, sender_mac, socket.inet_ntoa(sender))
                    elif self.gateway and sender == socket.inet_aton(self.gateway):
                        self.peer = sender_mac
            elif frame[12:14] == b"\x86\xdd" and frame[20] == 58 and len(frame) >= 86 and self.ip6 is not None:
                self.hear(frame)
            elif frame[42:50] == MAGIC and frame[12:14] == b"\x08\x00":
                if self.routed(frame, frame[22]) and checksum(frame[14:34]) == 0:
                    self.count(frame[50:62])
            elif frame[62:70] == MAGIC and frame[12:14] == b"\x86\xdd" and self.routed(frame, frame[21]):
                self.count(frame[70:82])


def checksum(data: bytes) -> int:
    """The Internet checksum."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(port: Port, src: str, dst: str, number: int, size: int) -> bytes:
    """One test frame, without FCS."""
    payload = MAGIC + struct.pack("!IQ", number, time.monotonic_ns())
    macs = port.link_addresses()
    if ":" in src:
        payload = payload.ljust(size - 4 - 62, b"\0")
        udp = struct.pack("!HHHH", 1024 + number % 60_000, 9, 8 + len(payload), 0)
        addresses = socket.inet_pton(socket.AF_INET6, src) + socket.inet_pton(socket.AF_INET6, dst)
        return macs + b"\x86\xdd" + struct.pack("!IHBB", 6 << 28, 8 + len(payload), 17, HOPS) + addresses + udp + payload
    payload = payload.ljust(size - 4 - 42, b"\0")
    udp = struct.pack("!HHHH", 1024 + number % 60_000, 9, 8 + len(payload), 0)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), 0, 0, HOPS, 17, 0)
    addresses = socket.inet_aton(src) + socket.inet_aton(dst)
    head = head[:10] + struct.pack("!H", checksum(head + addresses)) + addresses
    return macs + b"\x08\x00" + head + udp + payload


def latency(delays: list[int]) -> dict[str, float] | None:
    """The contract's latency."""
    if not delays:
        return None
    d = sorted(delays)
    mean = sum(d) / len(d)

    def at(share: float) -> float:
        return float(d[min(len(d) - 1, int(share * len(d)))])

    return {
        "count": len(d), "min": float(d[0]), "mean": mean, "max": float(d[-1]),
        "stdev": (sum((x - mean) ** 2 for x in d) / len(d)) ** 0.5,
        "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p99_9": at(0.999), "p99_99": at(0.9999), "p99_999": at(0.99999),
    }  # fmt: skip


def settle(ports: list[Port], senders: list[Port], patience: float) -> None:
    """Take what is still under way, until all is there or nothing has come for a while."""
    wanted, known, since = sum(p.sent for p in senders), -1, time.monotonic()
    while (got := sum(len(p.seen) for p in ports)) < wanted and (got > known or time.monotonic() - since < patience):
        if got > known:
            known, since = got, time.monotonic()
        for port in ports:
            port.receive()
        time.sleep(0.01)


def main() -> None:
    """Run one trial."""
    if sys.argv[1:2] != ["trial"]:
        sys.exit("only `trial' here")
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", action="append", required=True)
    for name in ("profile", "rate", "size", "duration", "line-rate"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--json", action="store_true", required=True)
    args = parser.parse_args(sys.argv[2:])
    rate, duration, size = float(args.rate.removesuffix("pps")), float(args.duration), int(args.size)
    profile = json.loads(Path(args.profile).read_text())
    (ip,) = (value for key, value in profile["streams"][0].items() if key in ("ipv4", "ipv6"))
    run = ip["src"]["increment"]
    hosts = [str(ipaddress.ip_address(run["first"]) + n) for n in range(run["count"])]
    ports = [Port(text) for text in args.port]
    left, right = ports
    senders = ports if profile["bidirectional"] else ports[:1]
    patience = PATIENCE_S if duration >= CHECK_S else CHECK_PATIENCE_S
    until = time.monotonic() + patience
    for port in ports:
        while port.gateway and port.peer is None and time.monotonic() < until:
            port.ask()
            time.sleep(0.02)
            for p in ports:
                p.receive()
    began = time.monotonic()
    for port in senders:
        port.intended = max(1, round(rate * duration))
    # It may be late: what is due is still sent, for a while.
    last = duration + patience
    while (now := time.monotonic() - began) < duration or (now < last and any(p.sent < p.intended for p in senders)):
        for port in senders:
            due = min(port.intended, int(now * rate) + 1)
            for number in range(port.sent, min(due, port.sent + 64)):
                src, dst = hosts[number % len(hosts)], ip["dst"]
                if port is right:
                    src, dst = dst, src
                port.socket.send(frame(port, src, dst, number, size))
                port.sent = number + 1
            port.receive()
        right.receive()
        left.receive()
        time.sleep(0.0002)
    settle(ports, senders, patience)
    directions = []
    for tx, rx, name in ((left, right, "left-to-right"), (right, left, "right-to-left")):
        if tx in senders:
            got = len(rx.seen)
            directions.append(
                {
                    "name": name, "tx": tx.name, "rx": rx.name, "intended": tx.intended, "sent": tx.sent,
                    "unsent": tx.intended - tx.sent, "received": got, "lost": tx.sent - got, "latency_ns": latency(rx.delays),
                    "tx_pps": tx.sent / duration, "rx_pps": got / duration,
                }
            )  # fmt: skip
    reasons = [f"{d['unsent']} frames were not sent" for d in directions if d["unsent"]]
    answer = {
        "schema": "quiver-trial/1", "tester": {"version": "test"}, "duration_s": duration, "settle_s": patience,
        "valid": not reasons, "reasons": reasons, "clock": "kernel", "engine": "af-packet", "directions": directions,
    }  # fmt: skip
    sys.stdout.write("done\n" + json.dumps(answer) + "\n")


main()
