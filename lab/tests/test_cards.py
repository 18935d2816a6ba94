"""Cards that the lab binds to the driver of their user, and back; a folder plays the kernel's ``/sys/bus/pci``."""

# ruff: noqa: F811  (the fixture of two hosts is test_farsite's)
from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from quiver_lab import campaign, remote
from quiver_lab.farsite import keep
from quiver_lab.processes import CommandError
from quiver_lab.testbed import Space
from quiver_lab.twohosts import Nic
from test_farsite import Rack, document, rack, runner  # noqa: F401  (the fixture)

pytestmark = pytest.mark.xdist_group("hosts")

CARDS = ("0000:02:00.0", "0000:02:00.1")
KERNELS, USERS = "ixgbe", "vfio-pci"
AS_BEFORE = [(KERNELS, "", "card0"), (KERNELS, "", "card1")]
BOUND = [(USERS, USERS, "")] * 2
NICS = [Nic(pci=card, interface=f"card{at}") for at, card in enumerate(CARDS)]


@dataclass
class Bus:
    """The PCI bus of a host: as in sysfs, what is written to a file of it binds a card.

    A card that is the kernel's is an end of a veth pair.
    """

    folder: Path
    space: Space
    names: tuple[str, str] = ("card0", "card1")
    files: dict[str, int] = field(default_factory=dict)
    refuses: bool = False
    """The driver for DPDK takes no card."""

    def __post_init__(self) -> None:
        drivers = [f"drivers/{driver}/{file}" for driver in (KERNELS, USERS) for file in ("unbind", "bind")]
        for name in (*drivers, "drivers_probe"):
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            os.mkfifo(path)
            self.files[name] = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        for card in CARDS:
            (self.folder / "devices" / card / "net").mkdir(parents=True)
            (self.folder / "devices" / card / "driver_override").write_text("(null)\n")
        self.ended, self.end = os.pipe()
        self.thread = threading.Thread(target=self.serve)

    def serve(self) -> None:
        while self.ended not in select.select([*self.files.values(), self.ended], [], [])[0]:
            for name in self.files:
                for card in self.written(name):
                    # Whoever binds a card has had it unbound before: that may have been written since it was looked for.
                    for before in (name for name in self.files if name.endswith("unbind")):
                        for other in self.written(before):
                            self.unbind(other)
                    match name.split("/"):
                        case ["drivers", _, "unbind"]:
                            self.unbind(card)
                        case ["drivers", driver, "bind"]:
                            self.bind(card, driver)
                        case _:
                            self.bind(card, self.override(card) or KERNELS)

    def written(self, name: str) -> list[str]:
        """Cards that have been written to a file."""
        with contextlib.suppress(BlockingIOError):
            return os.read(self.files[name], 4096).decode().split()
        return []

    def close(self) -> None:
        os.close(self.end)
        self.thread.join(20)
        for file in (*self.files.values(), self.ended):
            os.close(file)

    def override(self, card: str) -> str:
        asked = (self.folder / "devices" / card / "driver_override").read_text().strip()
        return "" if asked == "(null)" else asked

    def interface(self, card: str, name: str) -> None:
        (self.folder / "devices" / card / "net" / name).mkdir()

    def bind(self, card: str, driver: str) -> None:
        if driver == USERS and self.refuses:
            return
        device = self.folder / "devices" / card
        (device / "driver").symlink_to(self.folder / "drivers" / driver)
        if driver == KERNELS:
            name = self.names[CARDS.index(card)]
            self.space.run("ip", "link", "add", name, "type", "veth", "peer", "name", f"far-{card[-1]}")
            self.interface(card, name)

    def unbind(self, card: str) -> None:
        device = self.folder / "devices" / card
        (device / "driver").unlink()
        for net in (device / "net").iterdir():
            self.space.run("ip", "link", "del", self.present(card) or net.name)
            net.rmdir()

    def present(self, card: str) -> str:
        """What the interface is called by now: it may have been renamed."""
        at = CARDS.index(card)
        links = self.space.run("ip", "-o", "link", "show", "type", "veth")
        return next((name for name in (self.names[at], f"card{at}") if f": {name}@" in links), "")

    def state(self) -> list[tuple[str, str, str]]:
        """Driver, driver asked for, and interface of each card."""
        found = []
        for card in CARDS:
            driver = self.folder / "devices" / card / "driver"
            found.append((driver.resolve().name if driver.exists() else "", self.override(card), self.present(card)))
        return found

    def becomes(self, state: list[tuple[str, str, str]]) -> None:
        until = time.monotonic() + 60
        while self.state() != state:
            assert time.monotonic() < until, self.state()
            time.sleep(0.02)


@pytest.fixture
def bus(rack: Rack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bus]:
    monkeypatch.setattr(remote, "PCI", str(tmp_path / "pci"))
    bus = Bus(tmp_path / "pci", rack.wires.device)
    for card in CARDS:
        bus.bind(card, KERNELS)
    bus.thread.start()
    yield bus
    bus.close()


def host_of(rack: Rack) -> contextlib.AbstractContextManager[Any]:
    return remote.connected("dut", remote.parse(yaml.safe_dump(rack.description())).dut)


def orders(*, kernel: bool) -> list[str]:
    return [nic.order(kernel=kernel) for nic in NICS]


def is_up(bus: Bus, name: str) -> bool:
    return ",UP" in bus.space.run("ip", "-o", "link", "show", "dev", name)


def test_cards_are_bound_for_dpdk_and_given_back_with_name_and_state(rack: Rack, bus: Bus, tmp_path: Path) -> None:
    bus.space.run("ip", "link", "set", "dev", "card1", "up")
    assert bus.state() == AS_BEFORE
    with host_of(rack) as host:
        with keep(host, orders(kernel=False), tmp_path / "log") as (space, folder):
            assert bus.state() == BOUND
            assert space.pid is None
            assert folder.is_dir()
            # The driver begins with the name that it has for it, not with the one that somebody gave it.
            bus.names = ("eth7", "eth8")
        bus.becomes(AS_BEFORE)
        assert [is_up(bus, f"card{at}") for at in (0, 1)] == [False, True]
        assert not folder.exists()


def test_cards_of_a_connection_that_dies_are_given_back(rack: Rack, bus: Bus, tmp_path: Path) -> None:
    with contextlib.suppress(CommandError), host_of(rack) as host, keep(host, orders(kernel=False), tmp_path / "log"):
        assert bus.state() == BOUND
        rack.dut.cut()
    bus.becomes(AS_BEFORE)


def test_cards_that_dpdk_has_are_the_kernels_for_a_device_that_is_the_kernel(rack: Rack, bus: Bus, tmp_path: Path) -> None:
    with host_of(rack) as host:
        # As an operator binds them, for good.
        with keep(host, orders(kernel=False), tmp_path / "log"):
            with keep(host, orders(kernel=True), tmp_path / "inner") as (space, _):
                links = space.run("ip", "-o", "link", "show", "type", "veth")
                assert "card0" in links
                assert "card1" in links
                assert bus.state() == [(KERNELS, "", "")] * 2, "they are in the namespace"
            bus.becomes(BOUND)
        bus.becomes(AS_BEFORE)


def test_a_driver_that_refuses_is_one_line_and_all_is_as_before(rack: Rack, bus: Bus, tmp_path: Path) -> None:
    bus.refuses = True
    with host_of(rack) as host, pytest.raises(CommandError) as caught, keep(host, orders(kernel=False), tmp_path / "log"):
        pass
    assert str(caught.value) == f"dut: its ports cannot be taken: {CARDS[0]} cannot be bound to {USERS}"
    bus.becomes(AS_BEFORE)


def test_what_keeps_a_card_from_being_bound_is_said_before(rack: Rack, bus: Bus) -> None:
    with host_of(rack) as host:
        spec = remote.parse(yaml.safe_dump(rack.description())).dut
        said = [(c.state, c.what) for c in remote.look("dut", host, spec, NICS)]
        bound = f"is bound to {KERNELS}; a run binds it to {USERS}, and back"
        assert [("good", f"dut: {card} {bound}") for card in CARDS] == [line for line in said if "0000:02" in line[1]]
        assert remote.port_trouble(host, Nic(pci=CARDS[0], interface="card9")) == (
            f"{CARDS[0]} is card0, not card9", "correct 'interface'"
        )  # fmt: skip
        assert remote.port_trouble(host, Nic(pci="0000:02:00.7")) == ("there is no device 0000:02:00.7", "lspci -D lists them")
        assert remote.port_trouble(host, Nic(pci=CARDS[0], driver="igb_uio")) == (
            f"{CARDS[0]} is for igb_uio, which is not loaded", "modprobe igb_uio"
        )  # fmt: skip
        bus.space.run("ip", "addr", "add", "192.0.2.7/24", "dev", "card1")
        trouble = remote.port_trouble(host, NICS[1])
        assert trouble is not None
        assert trouble[0] == f"{CARDS[1]} is card1, which has addresses, so it is used for something else"
    assert bus.state() == AS_BEFORE


def test_one_description_does_for_the_kernel_and_for_dpdk(
    rack: Rack,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remote, "PCI", str(tmp_path / "pci"))
    bus = Bus(tmp_path / "pci", rack.wires.device)
    keys = document(rack)
    for card, wire in zip(CARDS, keys["testbed"]["hosts"]["wires"], strict=True):
        # The cards are the wires' ends.
        (bus.folder / "devices" / card / "driver").symlink_to(bus.folder / "drivers" / KERNELS)
        bus.interface(card, wire["dut"]["interface"])
        wire["dut"]["pci"] = card
    keys["matrix"]["dut"] = ["linux"]
    bus.thread.start()
    try:
        run = runner(tmp_path / "out", keys)
        run.run()
    finally:
        bus.close()
    (record,) = run.store.runs()
    assert record.status == "done", record.why
    described = campaign.parse(yaml.safe_dump(keys)).testbed.described()
    assert [nic.used(kernel=False).driver for nic in described.ports("dut")] == [USERS] * 2
