"""Headers as TRex's profiles write them: ``Ether()/IP(src="16.0.0.1")/UDP(dport=12)/"payload"``.

Only what a profile can ask of them is here: their fields, where these lie, and lengths. Frames are made by the tester.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import Any, ClassVar, Self


class Layer:
    """A header, with those that follow it in ``payload``."""

    SIZE: ClassVar[int] = 0
    """Bytes of the header."""
    OFFSETS: ClassVar[dict[str, int]] = {}
    """Where each field begins, bytes from the start of the header."""
    DEFAULTS: ClassVar[dict[str, Any]] = {}
    """Values of fields that a profile can give; ``None`` is the surroundings' business."""

    def __init__(self, **fields: Any) -> None:
        unknown = set(fields) - set(self.DEFAULTS)
        if unknown:
            raise ValueError(f"{type(self).__name__} has no field {', '.join(sorted(unknown))} here")
        self.fields: dict[str, Any] = {**self.DEFAULTS, **fields}
        self.payload: Layer | None = None

    def __getattr__(self, name: str) -> Any:
        """Fields read as attributes."""
        try:
            return self.__dict__["fields"][name]
        except KeyError:
            raise AttributeError(name) from None

    def copy(self) -> Self:
        """The same headers, apart from these."""
        other = copy(self)
        other.fields = dict(self.fields)
        other.payload = self.payload.copy() if self.payload else None
        return other

    def layers(self) -> Iterator[Layer]:
        """This header and all that follow it."""
        at: Layer | None = self
        while at:
            yield at
            at = at.payload

    def __truediv__(self, other: Layer | str | bytes) -> Self:
        """Put another header, or bytes, behind the last one."""
        new = self.copy()
        *_, last = new.layers()
        last.payload = other.copy() if isinstance(other, Layer) else Raw(other)
        return new

    def __len__(self) -> int:
        """Bytes of this header and all that follow it."""
        return sum(layer.size() for layer in self.layers())

    def __bool__(self) -> bool:
        """Headers are there, however short."""
        return True

    def size(self) -> int:
        """Bytes of this header alone."""
        return self.SIZE


class Raw(Layer):
    """Bytes that are no header."""

    DEFAULTS: ClassVar[dict[str, Any]] = {"load": b""}

    def __init__(self, load: str | bytes = b"") -> None:
        super().__init__(load=load)

    def size(self) -> int:
        """Its bytes."""
        return len(self.fields["load"])


class Ether(Layer):
    """Ethernet; addresses that are not given are the port's and its next hop's."""

    SIZE = 14
    OFFSETS: ClassVar[dict[str, int]] = {"dst": 0, "src": 6, "type": 12}
    DEFAULTS: ClassVar[dict[str, Any]] = {"dst": None, "src": None, "type": None}


class Dot1Q(Layer):
    """A VLAN tag."""

    SIZE = 4
    OFFSETS: ClassVar[dict[str, int]] = {"prio": 0, "vlan": 0, "type": 2}
    DEFAULTS: ClassVar[dict[str, Any]] = {"prio": 0, "id": 0, "vlan": 1, "type": None}


class IP(Layer):
    """IPv4 without options."""

    SIZE = 20
    OFFSETS: ClassVar[dict[str, int]] = {
        "tos": 1, "len": 2, "id": 4, "flags": 6, "frag": 6, "ttl": 8, "proto": 9, "chksum": 10, "src": 12, "dst": 16,
    }  # fmt: skip
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "version": 4, "ihl": None, "tos": 0, "len": None, "id": 1, "flags": 0, "frag": 0, "ttl": 64, "proto": None, "chksum": None,
        "src": "127.0.0.1", "dst": "127.0.0.1",
    }  # fmt: skip


class IPv6(Layer):
    """IPv6 without extension headers."""

    SIZE = 40
    OFFSETS: ClassVar[dict[str, int]] = {"plen": 4, "nh": 6, "hlim": 7, "src": 8, "dst": 24}
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "version": 6, "tc": 0, "fl": 0, "plen": None, "nh": None, "hlim": 64, "src": "::1", "dst": "::1",
    }  # fmt: skip


class UDP(Layer):
    """UDP."""

    SIZE = 8
    OFFSETS: ClassVar[dict[str, int]] = {"sport": 0, "dport": 2, "len": 4, "chksum": 6}
    DEFAULTS: ClassVar[dict[str, Any]] = {"sport": 53, "dport": 53, "len": None, "chksum": None}


class TCP(Layer):
    """TCP without options."""

    SIZE = 20
    OFFSETS: ClassVar[dict[str, int]] = {
        "sport": 0, "dport": 2, "seq": 4, "ack": 8, "dataofs": 12, "flags": 13, "window": 14, "chksum": 16, "urgptr": 18,
    }  # fmt: skip
    DEFAULTS: ClassVar[dict[str, Any]] = {
        "sport": 20, "dport": 80, "seq": 0, "ack": 0, "dataofs": None, "flags": "S", "window": 8192, "chksum": None, "urgptr": 0,
    }  # fmt: skip


class ICMP(Layer):
    """An ICMP message; an echo request unless given."""

    SIZE = 8
    OFFSETS: ClassVar[dict[str, int]] = {"type": 0, "code": 1, "chksum": 2, "id": 4, "seq": 6}
    DEFAULTS: ClassVar[dict[str, Any]] = {"type": 8, "code": 0, "chksum": None, "id": 0, "seq": 0}


def offset_of(packet: Layer, place: int | str) -> int:
    """The place of ``"IP.src"``, ``"IP:1.src"`` or ``"IP"``, bytes from the start of the frame.

    Raises ValueError where the packet has no such header or the header no such field.
    """
    if isinstance(place, int):
        return place
    name, _, field = place.partition(".")
    name, _, number = name.partition(":")
    at, left = 0, int(number or 0)
    for layer in packet.layers():
        if type(layer).__name__ == name:
            if left == 0:
                if field and field not in layer.OFFSETS:
                    raise ValueError(f"{name} has no field {field} here")
                return at + (layer.OFFSETS[field] if field else 0)
            left -= 1
        at += layer.size()
    raise ValueError(f"the packet has no {place}")
