"""A testbed of two hosts: its description (YAML, ``quiver-testbed/1``), and a look at whether the hosts are as described."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from quiver_lab import description, hosts, units
from quiver_lab.doctor import Check
from quiver_lab.hosts import Host
from quiver_lab.processes import CommandError

NEEDS = {"tester": ("quiver-tester",), "dut": ("quiver", "quiverctl")}
"""Programs of each host."""


class TestbedError(ValueError):
    """A description that cannot be; one line with the place."""

    __test__ = False


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class Nic(_Strict):
    """A network card's port, by its place on the PCI bus."""

    pci: Annotated[str, Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$")]
    driver: Literal["vfio-pci", "uio_pci_generic", "igb_uio", "mlx5_core", "mlx4_core"] = "vfio-pci"
    """What must be bound to it, for DPDK to drive it."""


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


class RemoteTestbed(_Strict):
    """The whole description."""

    schema_: Literal["quiver-testbed/1"] = Field(alias="schema")
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]
    line_rate: str = "10Gbps"
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
            left, right = (getattr(w, side).pci for w in self.wires)
            if left == right:
                raise ValueError(f"wires: both end in the {side}'s {left}")
        if same and (twice := {w.tester.pci for w in self.wires} & {w.dut.pci for w in self.wires}):
            raise ValueError(f"wires: {', '.join(sorted(twice))} is both the tester's and the dut's")
        return self


def parse(text: str, name: str = "testbed") -> RemoteTestbed:
    """Read a description; errors are one line with the place."""
    return description.read(RemoteTestbed, text, name, TestbedError)


def load(path: Path) -> RemoteTestbed:
    """Read a description's file."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise TestbedError(f"{path}: {error.strerror or error}") from error


@contextlib.contextmanager
def connected(name: str, spec: HostSpec) -> Iterator[Host]:
    """A described host, for the length of a block."""
    with hosts.ssh(
        name, spec.address, port=spec.port, user=spec.user, key=spec.key, known_hosts=spec.known_hosts, binaries=spec.binaries
    ) as host:
        yield host


def checks(bed: RemoteTestbed) -> Iterator[Check]:
    """Whether both hosts are as described; changes nothing on them."""
    for side, spec, nics in (
        ("tester", bed.tester, [w.tester for w in bed.wires]),
        ("dut", bed.dut, [w.dut for w in bed.wires]),
    ):
        try:
            with connected(side, spec) as host:
                yield from look(side, host, spec, nics)
        except CommandError as error:
            yield Check("bad", str(error), "see that ssh reaches it with this user, key and known_hosts")


def look(side: str, host: Host, spec: HostSpec, nics: list[Nic]) -> Iterator[Check]:
    """What one host has."""
    yield Check("good", f"{side}: {host.run(['uname', '-sr']).strip()} answers")
    count = int(host.run(["nproc", "--all"]))
    lacking = [c for c in spec.cores if c >= count]
    if lacking:
        yield Check("bad", f"{side}: it has {count} cores; cores {', '.join(map(str, lacking))} are not there", "correct cores")
    else:
        yield Check("good", f"{side}: cores {', '.join(map(str, spec.cores))} of {count} are there")
    for program in NEEDS[side]:
        where = host.find(program)
        yield (
            Check("good", f"{side}: {program} is {where}")
            if where
            else Check("bad", f"{side}: {program} is not installed", f"{side}.binaries names it")
        )
    for nic in nics:
        folder = f"/sys/bus/pci/devices/{nic.pci}"
        said = host.run(["sh", "-c", f"test -d {folder} && basename $(readlink {folder}/driver || echo none) || echo missing"])
        match said.strip():
            case "missing":
                yield Check("bad", f"{side}: there is no device {nic.pci}", "lspci -D lists them")
            case driver if driver == nic.driver:
                yield Check("good", f"{side}: {nic.pci} is bound to {driver}")
            case driver:
                found = "no driver" if driver == "none" else driver
                remedy = f"dpdk-devbind.py --bind {nic.driver} {nic.pci}"
                yield Check("bad", f"{side}: {nic.pci} is bound to {found}, not to {nic.driver}", remedy)
    pages = host.run(["sh", "-c", "cat /proc/sys/vm/nr_hugepages 2>/dev/null || echo 0"]).strip()
    if pages == "0":
        yield Check("could", f"{side}: no huge pages are reserved, which DPDK wants", "sysctl vm.nr_hugepages=1024")
    else:
        yield Check("good", f"{side}: {pages} huge pages are reserved")
