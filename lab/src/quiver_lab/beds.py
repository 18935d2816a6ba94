"""The testbeds that a campaign runs on: its own, or those of files (``quiver-testbed/1``) in its place.

A file without ``kind`` describes two hosts (``twohosts.py``); with ``kind: local`` or ``kind: simulated`` it has the keys of a
campaign's ``testbed``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field

from quiver_lab import description, site, twohosts
from quiver_lab.campaign import Campaign, Testbed
from quiver_lab.site import Site
from quiver_lab.twohosts import RemoteTestbed, TestbedError

WAYS = {"address", "port", "user", "key", "known_hosts"}
"""How to get to a host: no part of the results."""


class _File(Testbed):
    """A testbed of one machine in a file of its own."""

    schema_: Literal["quiver-testbed/1"] = Field(alias="schema")
    kind: Literal["local", "simulated"]
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")]


@dataclass(frozen=True, slots=True)
class Bed:
    """One testbed, and the campaign as it is there."""

    name: str
    campaign: Campaign
    described: bool
    """Whether it stands in a file of its own: then the results keep what it is."""

    def facts(self, where: Site, machine: dict[str, Any]) -> dict[str, Any]:
        """What results keep of it, and of its machines; ``machine`` is the one that this is asked on."""
        bed = self.campaign.testbed.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude={"file"})
        for side in ("tester", "dut"):
            for key in WAYS if bed.get("hosts") else ():
                bed["hosts"][side].pop(key, None)
        machines = getattr(where, "machines", None)
        return {"testbed": bed, "machines": machines() if machines else {"here": machine}}


def of_hosts(hosts: RemoteTestbed, like: Testbed | None = None) -> Testbed:
    """The testbed of two hosts; what is not said of them is as in ``like``."""
    keys = {} if like is None else {key: getattr(like, key) for key in like.model_fields_set}
    return Testbed.model_validate(
        {
            **keys, "kind": "remote", "name": keys.get("name") or hosts.name, "file": None, "hosts": hosts,
            "dut_cores": hosts.dut.cores, "tester_core": hosts.tester.cores[0],
        }
    )  # fmt: skip


def read(text: str, name: str) -> Testbed:
    """Read a testbed's file; errors are one line with the place."""
    try:
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise TestbedError(f"{name}: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict) or document.get("kind", "remote") == "remote":
        return of_hosts(twohosts.parse(text, name))
    found = description.read(_File, text, name, TestbedError)
    if found.kind == "local" and found.tester_core in found.dut_cores:
        raise TestbedError(f"{name}: the tester's core is among the device's: their work could not be told apart")
    return Testbed.model_validate(found.model_dump(exclude={"schema_"}, exclude_unset=True))


def load(path: Path) -> Testbed:
    """Read a testbed's file."""
    try:
        return read(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise TestbedError(f"{path}: {error.strerror or error}") from error


def of(campaign: Campaign, folder: Path, files: Sequence[Path] = ()) -> list[Bed]:
    """A campaign's testbeds: those of ``files``, or else its own, whose file is seen from ``folder``."""
    own = campaign.testbed
    if own.kind == "remote":
        own = of_hosts(twohosts.load(folder / own.file) if own.file else own.described(), own)
    beds = [load(file) for file in files] or [own]
    names = [bed.title for bed in beds]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise TestbedError(f"two testbeds have the name {', '.join(twice)}")
    return [Bed(bed.title, campaign.model_copy(update={"testbed": bed}), bool(files) or bed.kind == "remote") for bed in beds]


def with_sites(beds: Sequence[Bed]) -> list[tuple[Bed, Site]]:
    """Each testbed with its site."""
    return [(bed, site.of(bed.campaign)) for bed in beds]
