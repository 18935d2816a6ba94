"""Two hosts as a site: what is on them, and ground made ready for one run over SSH.

On each host a shell of ours keeps a folder and, where its ports are the kernel's, a namespace with these ports in it::

    tester's host                                    DUT's host
    ┌─ namespace ──────────┐                        ┌─ namespace ──────────┐
    │ quiver-tester   left ├────────── wire ────────┤ left    device       │
    │                right ├────────── wire ────────┤ right                │
    └──────────────────────┘                        └──────────────────────┘

A card that is named by its PCI address is bound to the driver that its user needs: DPDK's, or the kernel's where the device is
the kernel.

The shell ends with its block or with the connection, whichever is first: it gives the ports back as they were, and removes the
folder. A port that another lab holds is not there, so two labs never measure on the same wires.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from quiver_lab import facts, remote, units
from quiver_lab.campaign import Campaign, Cell, Link
from quiver_lab.commands import Host
from quiver_lab.facts import Cores
from quiver_lab.processes import CommandError, last_line
from quiver_lab.site import Far, Ground
from quiver_lab.testbed import QUIET, Wires
from quiver_lab.twohosts import HostSpec, Nic, RemoteTestbed

PROGRAMS = {
    "tester": ("quiver-tester",),
    "dut": ("quiver", "quiverctl", "vpp", "vppctl", "dpdk-testpmd", "ethtool", "nft"),
}
"""What is looked for on each host beside ``TOOLS``."""
TOOLS = ("ip", "nsenter", "unshare", "setpriv", "taskset", "timeout", "mktemp")
"""What each host must have."""
STARTS_S = 60.0
"""A card's driver may take seconds to begin."""
ENDS_S = 60.0
"""As long for the way back."""

KEEPER = r"""
space=; kept=; nap=; folder=; bound=
driver() { if [ -e "$PCI/devices/$1/driver" ]; then basename "$(readlink "$PCI/devices/$1/driver")"; else echo none; fi; }
interfaces() { for net in "$PCI/devices/$1"/net/*; do [ ! -e "$net" ] || echo "${net##*/}"; done; }
# until_true COMMAND…: for 20 seconds, since a driver's interfaces come, and are renamed, after it has begun.
until_true() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 400 ] || return 1; sleep 0.05; done; }
has_driver() { [ "$(driver "$1")" = "$2" ]; }
has_interface() { [ -n "$(interfaces "$1")" ]; }
# release CARD OVERRIDE: takes a card from its driver; next it is for this one alone, or for whichever knows it ('').
release() {
  echo "$2" >"$PCI/devices/$1/driver_override" || return 1
  [ ! -e "$PCI/devices/$1/driver" ] || echo "$1" >"$PCI/devices/$1/driver/unbind"
}
# named CARD NAME UP: its interface has this name again, and is up if it was.
named() {
  until_true has_interface "$1" || return 1
  set -- "$1" "$2" "$3" "$(interfaces "$1" | head -n 1)"
  [ "$4" = "$2" ] || { ip link set dev "$4" down; ip link set dev "$4" name "$2"; } || return 1
  [ "$3" = 0 ] || ip link set dev "$2" up
}
is_up() { echo $(($(cat "/sys/class/net/$1/flags" 2>/dev/null || echo 0) & 1)); }
# take CARD DRIVER: binds a card to a driver, or where none is named to the kernel's, and notes how it was.
take() {
  if [ -n "$2" ]; then ! has_driver "$1" "$2" || return 0; else ! has_interface "$1" || return 0; fi
  old=$(cat "$PCI/devices/$1/driver_override"); [ "$old" != "(null)" ] || old=
  name=$(interfaces "$1" | head -n 1); up=0; [ -z "$name" ] || up=$(is_up "$name")
  bound="$bound $1/$(driver "$1")/$old/$name/$up"
  release "$1" "$2" && echo "$1" >"$PCI/drivers_probe" || return 1
  if [ -n "$2" ]; then until_true has_driver "$1" "$2"; else until_true has_interface "$1"; fi
}
back() {
  trap '' TERM INT HUP
  for line in $kept; do
    port=${line%%/*}; inside="nsenter --target $space --net --mount --"
    $inside sh -c "echo 0 > /sys/class/net/$port/threaded" 2>/dev/null
    set -- $(echo "${line#*/}" | tr / ' '); up=$1; shift
    [ $# = 0 ] || $inside ethtool -K "$port" "$@" >/dev/null 2>&1
    $inside ip link set dev "$port" netns $$ && { [ "$up" = 0 ] || ip link set dev "$port" up; }
  done
  for line in $bound; do
    old_ifs=$IFS; IFS=/; set -- $line; IFS=$old_ifs
    # Its user may still be about to end: the kernel lets go of a card only then.
    release "$1" "$3"
    [ "$2" = none ] || echo "$1" >"$PCI/drivers/$2/bind"
    [ -z "$4" ] || named "$1" "$4" "$5"
  done
  kill -KILL $space $nap 2>/dev/null
  rm -rf "$folder"
}
# Before there is anything to take back: whoever is told to end right here leaves no folder.
trap 'back; exit 0' TERM INT HUP
folder=$(mktemp -d /tmp/quiver-lab-XXXXXXXX)
fail() { [ -z "$1" ] || echo "$1"; back 2>/dev/null; exit 1; }
ports=
for order; do
  case $order in
    *=*) take "${order%%=*}" "${order#*=}" || fail "${order%%=*} cannot be bound to ${order#*=}" ;;
    *@*)
      port=${order%%@*}; card=${order#*@}
      if has_interface "$card"; then
        [ -e "$PCI/devices/$card/net/$port" ] || fail "$card is not $port"
      else
        take "$card" "" && named "$card" "$port" 0 || fail "no driver of the kernel makes $card an interface"
      fi
      ports="$ports $port"
      ;;
    *) ports="$ports $order" ;;
  esac
done
if [ -n "$ports" ]; then
  setpriv --pdeathsig KILL -- unshare --net --mount --propagation private -- sh -c \
    'mount -t sysfs none /sys && ip link set lo up && touch "$1/ready" && exec sleep infinity' keep "$folder" & space=$!
  until [ -e "$folder/ready" ]; do kill -0 $space 2>/dev/null || fail; sleep 0.02; done
  nsenter --target $space --net -- sh -c "$QUIET" || true
fi
for port in $ports; do
  line=$port/$(is_up "$port")
  for pair in rx:rx-checksumming tx:tx-checksumming tso:tcp-segmentation-offload gso:generic-segmentation-offload \
      gro:generic-receive-offload; do
    state=$(ethtool -k "$port" 2>/dev/null | sed -n "s/^${pair#*:}: \(o[nf]*\)$/\1/p")
    [ -z "$state" ] || line=$line/${pair%%:*}/$state
  done
  ip link set dev "$port" netns $space || fail
  kept="$kept $line"
  nsenter --target $space --net --mount -- ip link set dev "$port" up || fail
  # Frames as they are: no checksums left to others, no frames put together.
  nsenter --target $space --net --mount -- ethtool -K "$port" tx off rx off tso off gso off gro off >/dev/null 2>&1 || true
done
echo "kept ${space:-none} $folder"
sleep infinity & nap=$!; wait
"""
"""Its arguments are the ports that it takes (``Nic.order``); says its namespace's process and its folder when all is ready."""


@dataclass(frozen=True, slots=True)
class FarSpace:
    """A namespace on another host; its own, where there is none."""

    host: Host
    pid: int | None
    beyond: FarSpace | None = None

    def command(self, words: Sequence[str]) -> list[str]:
        """The same command inside."""
        return [*(["nsenter", "--target", str(self.pid), "--net", "--mount", "--"] if self.pid else []), *words]

    def run(self, *words: str, text: str = "") -> str:
        """Run a command inside."""
        return self.host.run(self.command(words), text=text)


@dataclass(frozen=True, slots=True)
class Looked:
    """What one host has."""

    programs: Mapping[str, str | None]
    machine: dict[str, Any]
    trouble: str | None
    """What of its ports, cores and tools is not as described."""


def look(side: str, host: Host, spec: HostSpec, ports: Sequence[Nic]) -> Looked:
    """Ask a host for everything that adapters want to know before a run."""
    programs = {name: host.find(name) for name in (*PROGRAMS[side], *TOOLS)}
    files: dict[str, str] = {}
    said = host.run(["sh", "-c", 'for f; do echo "=== $f"; cat "/$f" 2>/dev/null; done', "facts", *facts.FILES])
    for part in ("\n" + said).split("\n=== ")[1:]:
        name, _, text = part.partition("\n")
        files[name] = text.strip()
    kernel, architecture, cores = host.run(["sh", "-c", "uname -rm; nproc --all"]).split()
    machine = {
        "kernel": kernel, "architecture": architecture, "cores": int(cores),
        **facts.from_files(lambda name: files.get(name) or None),
    }  # fmt: skip
    trouble = next((f"{name} is not installed" for name in TOOLS if programs[name] is None), None)
    if lacking := [c for c in spec.cores if c >= int(cores)]:
        trouble = f"it has {cores} cores; cores {', '.join(map(str, lacking))} are not there"
    elif any(nic.interface for nic in ports) and host.run(["id", "-u"]).strip() != "0":
        trouble = "network namespaces need root"
    for nic in ports:
        if trouble is None and (found := remote.port_trouble(host, nic)):
            trouble = found[0]
    return Looked(programs, machine, f"{side}: {trouble}" if trouble else None)


class FarSite:
    """The two hosts of a testbed that is described."""

    links: tuple[Link, ...] = ("ports",)

    def __init__(self, campaign: Campaign) -> None:
        self._bed: RemoteTestbed = campaign.testbed.described()
        self._campaign = campaign

    @cached_property
    def _looked(self) -> tuple[Looked, Looked]:
        """The device's host and the tester's, looked at once."""
        found = []
        for side, spec in (("dut", self._bed.dut), ("tester", self._bed.tester)):
            with remote.connected(side, spec) as host:
                found.append(look(side, host, spec, self._bed.ports(side)))
        return found[0], found[1]

    def machines(self) -> dict[str, Any]:
        """Facts of both hosts."""
        dut, tester = self._looked
        return {"dut": dut.machine, "tester": tester.machine}

    def absent(self, cell: Cell) -> str | None:
        """What this testbed cannot carry."""
        if cell.link != "ports":
            return "a testbed of two hosts has wires of its own: link 'ports'"
        if cell.numa:
            return "the lab does not look at the NUMA nodes of other hosts"
        if self._campaign.line_bit_per_s > units.parse_bit_per_s(self._bed.line_rate):
            return f"the wires carry {self._bed.line_rate}; the campaign's line rate is {self._campaign.line_rate}"
        return None

    def program(self, name: str) -> str | None:
        """Path of a program on the device's host."""
        return self._looked[0].programs.get(name)

    def tester_program(self) -> str | None:
        """Path of quiver-tester on its host."""
        return self._looked[1].programs["quiver-tester"]

    def tester_cores(self) -> tuple[int, ...]:
        """As described."""
        return self._bed.tester.cores

    def lacking(self) -> str | None:
        """What of the hosts is not as described."""
        return next((x.trouble for x in self._looked if x.trouble), None)

    def tester_drivers(self, cell: Cell) -> tuple[str, ...]:
        """As described."""
        return tuple(nic.driver for nic in self._bed.ports("tester"))

    @contextlib.contextmanager
    def ground(self, cell: Cell, folder: Path, *, kernel: bool = False) -> Iterator[Ground]:
        """Connect to both hosts and take their ports."""
        with contextlib.ExitStack() as stack:
            hosts, spaces, folders = {}, {}, {}
            for side, spec in (("dut", self._bed.dut), ("tester", self._bed.tester)):
                host = hosts[side] = stack.enter_context(remote.connected(side, spec))
                orders = [nic.order(kernel=kernel and side == "dut") for nic in self._bed.ports(side)]
                spaces[side], folders[side] = stack.enter_context(keep(host, orders, folder / f"{side}.log"))
            left, right = (nic.used(kernel=kernel) for nic in self._bed.ports("dut"))
            kernels = left.interface is not None
            device = spaces["dut"]
            wires = Wires(
                FarSpace(hosts["tester"], spaces["tester"].pid, device), device, _places(self._bed, "tester"),
                (left.place, right.place),
            )  # fmt: skip
            macs = tuple(device.run("cat", f"/sys/class/net/{port}/address").strip() for port in wires.device_ports if kernels)

            def cores() -> Cores:
                of = {side: facts.parse_core_times(host.run(["cat", "/proc/stat"])) for side, host in hosts.items()}
                mine = self._bed.tester.cores
                return Cores(of["dut"], {core: times for core, times in of["tester"].items() if core in mine})

            yield Ground(
                device=hosts["dut"],
                folder=folders["dut"],
                wires=wires,
                macs=(macs[0], macs[1]) if macs else None,
                drivers=(left.driver, right.driver),
                cores=cores,
                far=Far(hosts["tester"], folders["tester"]),
            )


def _places(bed: RemoteTestbed, side: str) -> tuple[str, str]:
    left, right = (nic.place for nic in bed.ports(side))
    return left, right


@contextlib.contextmanager
def keep(host: Host, orders: Sequence[str], log: Path) -> Iterator[tuple[FarSpace, Path]]:
    """Have a folder, ports (``Nic.order``) and, for the kernel's, a namespace on another host for the length of a block."""
    command = ["env", f"QUIET={QUIET}", f"PCI={remote.PCI}", "sh", "-c", KEEPER, "keep", *orders]
    with host.running(command, log=log, ends_s=ENDS_S) as process:
        until = time.monotonic() + STARTS_S
        while not (said := log.read_text(encoding="utf-8", errors="replace") if log.exists() else "").endswith("\n") or (
            not last_line(said).startswith("kept ")
        ):
            if process.poll() is not None:
                raise CommandError(f"{host.name}: its ports cannot be taken: {last_line(said) or 'the shell ended'}")
            if time.monotonic() > until:
                raise CommandError(f"{host.name}: its ports were not taken within {STARTS_S:g} s")
            time.sleep(0.01)
        _, pid, folder = last_line(said).split()
        yield FarSpace(host, int(pid) if pid != "none" else None), Path(folder)
