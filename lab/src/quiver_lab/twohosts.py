"""A testbed of two hosts as it is described (YAML, ``quiver-testbed/1``): machines, how to get there, cores, wires."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from quiver_lab import description, units

KERNEL_DRIVERS = ("af-packet", "af-xdp", "xdp")
"""How a port is driven that stays the kernel's."""
VIRTUAL_DRIVERS = ("net_af_packet",)
"""DPDK's virtual devices over a port of the kernel's: they play a card where there is none."""


class TestbedError(ValueError):
    """A description that cannot be; one line with the place."""

    __test__ = False


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Nic(_Strict):
    """A network card's port: by its place on the PCI bus, for DPDK, or by the name of the kernel's interface.

    One that is named by both is the kernel's for a device that is the kernel, and DPDK's for all others. So is an interface
    under one of DPDK's virtual devices.
    """

    pci: Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$")] | None = None
    interface: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,14}$")] | None = None
    driver: Literal[
        "vfio-pci", "uio_pci_generic", "igb_uio", "mlx5_core", "mlx4_core", "af-packet", "af-xdp", "xdp", "net_af_packet"
    ] = "vfio-pci"  # fmt: skip
    """What is bound to a card for DPDK to drive it; or how an interface is driven, ``af-packet`` unless said otherwise."""

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, keys: object) -> object:
        if isinstance(keys, dict) and "interface" in keys and "pci" not in keys:
            return {"driver": "af-packet", **keys}
        return keys

    @model_validator(mode="after")
    def _named(self) -> Nic:
        if not self.place:
            raise ValueError("a port is named by 'pci', by 'interface', or by both")
        if (self.pci is None) != (self.driver in (*KERNEL_DRIVERS, *VIRTUAL_DRIVERS)):
            raise ValueError(f"'{self.driver}' does not drive {self.place}")
        return self

    @property
    def place(self) -> str:
        """What it is named by."""
        return self.pci or self.interface or ""

    def used(self, *, kernel: bool) -> Nic:
        """The port as it is used: by its interface alone, or by its PCI address alone."""
        if kernel and self.interface is not None:
            return Nic(interface=self.interface, driver=self.driver if self.driver in KERNEL_DRIVERS else "af-packet")
        return self if self.pci is None else Nic(pci=self.pci, driver=self.driver)

    def order(self, *, kernel: bool) -> str:
        """The same in a word for the shell that takes it: ``INTERFACE``, ``INTERFACE@CARD``, or ``CARD=DRIVER``."""
        if self.pci is None:
            return str(self.interface)
        return f"{self.interface}@{self.pci}" if kernel and self.interface else f"{self.pci}={self.driver}"


class HostSpec(_Strict):
    """One machine, and how to get there."""

    address: Annotated[str, Field(min_length=1)]
    port: int = Field(default=22, ge=1, le=65_535)
    user: str | None = None
    key: Path | None = None
    """Private key; none: those that the agent or ``~/.ssh`` has."""
    known_hosts: Path | None = None
    """Keys of known hosts; none: ``~/.ssh/known_hosts``. There is no way to do without."""
    cores: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=1)
    """Cores that may be used; the first is the main thread's."""
    binaries: dict[str, str] = Field(default_factory=dict)
    """Paths there of programs that are not on its PATH."""

    @field_validator("cores")
    @classmethod
    def _once(cls, cores: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(cores)) < len(cores):
            raise ValueError("a core is named twice")
        return cores


class Wire(_Strict):
    """A cable between two ports."""

    tester: Nic
    dut: Nic

    @model_validator(mode="after")
    def _drivers(self) -> Wire:
        if self.dut.driver == "xdp":
            raise ValueError("'xdp' ports are the tester's alone: the dut has af-packet or af-xdp")
        return self


class RemoteTestbed(_Strict):
    """The whole description."""

    schema_: Literal["quiver-testbed/1"] = Field(alias="schema")
    kind: Literal["remote"] = "remote"
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    line_rate: str = "10Gbps"
    """What the wires carry; a campaign's line rate may not be higher."""
    tester: HostSpec
    dut: HostSpec
    wires: tuple[Wire, Wire]
    """Left, then right."""

    @model_validator(mode="after")
    def _consistent(self) -> RemoteTestbed:
        units.parse_bit_per_s(self.line_rate)
        same = (self.tester.address, self.tester.port) == (self.dut.address, self.dut.port)
        if same and (both := sorted({*self.tester.cores} & {*self.dut.cores})):
            raise ValueError(f"tester and dut are one host and share cores {both}: their work could not be told apart")
        for side in ("tester", "dut"):
            left, right = self.ports(side)
            if left.place == right.place:
                raise ValueError(f"wires: both end in the {side}'s {left.place}")
            kinds = [(n.pci is None, n.interface is None, n.driver in VIRTUAL_DRIVERS) for n in (left, right)]
            if kinds[0] != kinds[1]:
                raise ValueError(f"wires: one of the {side}'s ports is DPDK's and one the kernel's: name both the same way")
            if left.interface is not None and left.interface == right.interface:
                raise ValueError(f"wires: both end in the {side}'s {left.interface}")
        if same and (twice := {w.tester.place for w in self.wires} & {w.dut.place for w in self.wires}):
            raise ValueError(f"wires: {', '.join(sorted(twice))} is both the tester's and the dut's")
        return self

    def ports(self, side: str) -> tuple[Nic, Nic]:
        """Left and right port of ``tester`` or ``dut``."""
        left, right = (getattr(wire, side) for wire in self.wires)
        return left, right


def dpdk_devices(driver: str, ports: Sequence[str]) -> list[str]:
    """DPDK's names of ports with this driver; none where the kernel drives them."""
    if driver in KERNEL_DRIVERS:
        return []
    return [f"{driver}{n},iface={port}" for n, port in enumerate(ports)] if driver in VIRTUAL_DRIVERS else list(ports)


def parse(text: str, name: str = "testbed") -> RemoteTestbed:
    """Read a description; errors are one line with the place."""
    return description.read(RemoteTestbed, text, name, TestbedError)


def load(path: Path) -> RemoteTestbed:
    """Read a description's file."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise TestbedError(f"{path}: {error.strerror or error}") from error
