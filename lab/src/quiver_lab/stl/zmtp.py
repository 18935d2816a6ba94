"""The asking side (REQ) of ZeroMQ's wire protocol ZMTP 3.0 (rfc.zeromq.org/spec/23), without security: what TRex listens with.

One request, one answer, over one connection that is there already. An answer that is none is a ``ZmtpError``.
"""

from __future__ import annotations

import socket
import struct

SIGNATURE = b"\xff" + bytes(8) + b"\x7f"
MORE, LONG, COMMAND = 1, 2, 4
LARGEST = 64 * 1024 * 1024
"""Bytes of an answer that are accepted."""


class ZmtpError(RuntimeError):
    """A peer that speaks something else, or no longer; one line."""


def ready(kind: bytes) -> bytes:
    """The READY command of a socket of a kind."""
    body = b"\x05READY" + bytes([len(b"Socket-Type")]) + b"Socket-Type" + struct.pack("!I", len(kind)) + kind
    return bytes([COMMAND, len(body)]) + body


def greeting() -> bytes:
    """Version 3.0, mechanism NULL."""
    return SIGNATURE + b"\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)


def frame(body: bytes, flags: int = 0) -> bytes:
    """A frame of a message."""
    if len(body) > 255:
        return bytes([flags | LONG]) + struct.pack("!Q", len(body)) + body
    return bytes([flags, len(body)]) + body


class Requester:
    """Asks over a connected socket."""

    def __init__(self, connection: socket.socket, silence_s: float) -> None:
        """Shake hands; the peer may say nothing for ``silence_s``."""
        self._connection = connection
        connection.settimeout(silence_s)
        self._send(greeting())
        theirs = self._take(64)
        if theirs[:1] != b"\xff" or theirs[9:10] != b"\x7f" or theirs[10] < 3:
            raise ZmtpError("it does not speak ZMTP 3")
        if theirs[12:32].rstrip(b"\0") != b"NULL":
            raise ZmtpError("it asks for credentials")
        self._send(ready(b"REQ"))
        flags, body = self._frame()
        if not flags & COMMAND or not body.startswith(b"\x05READY"):
            raise ZmtpError("it refuses the connection")

    def ask(self, request: bytes) -> bytes:
        """Send a request and wait for its answer."""
        self._send(frame(b"", MORE) + frame(request))
        parts = []
        while True:
            flags, body = self._frame()
            if flags & COMMAND:
                continue
            parts.append(body)
            if not flags & MORE:
                break
        if len(parts) != 2 or parts[0]:
            raise ZmtpError(f"its answer has {len(parts)} parts")
        return parts[1]

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _send(self, data: bytes) -> None:
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise ZmtpError(f"its connection is gone ({error})") from error

    def _take(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            try:
                more = self._connection.recv(min(count - len(data), 65_536))
            except TimeoutError as error:
                raise ZmtpError(f"it said nothing for {self._connection.gettimeout():g} s") from error
            except OSError as error:
                raise ZmtpError(f"its connection is gone ({error})") from error
            if not more:
                raise ZmtpError("it hung up")
            data += more
        return bytes(data)

    def _frame(self) -> tuple[int, bytes]:
        flags = self._take(1)[0]
        (size,) = struct.unpack("!Q", self._take(8)) if flags & LONG else self._take(1)
        if size > LARGEST:
            raise ZmtpError(f"its answer has {size} bytes")
        return flags, self._take(size)
