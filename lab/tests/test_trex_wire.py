"""What TRex's server speaks, frames of ZMTP, and what is none."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from quiver_lab.stl import zmtp


@contextlib.contextmanager
def peer(speaks: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """A connection to a thread that speaks once it has our greeting."""
    ours, theirs = socket.socketpair()

    def run() -> None:
        with contextlib.suppress(OSError):
            theirs.recv(64, socket.MSG_WAITALL)
            speaks(theirs)
        theirs.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join()


READY = zmtp.ready(b"ROUTER")


def answering(*frames: bytes) -> Callable[[socket.socket], None]:
    """A peer that shakes hands and sends these when it is asked."""

    def speaks(connection: socket.socket) -> None:
        connection.sendall(zmtp.greeting() + READY)
        connection.recv(len(zmtp.ready(b"REQ")), socket.MSG_WAITALL)
        connection.recv(2 + 2 + len(b"hello"), socket.MSG_WAITALL)
        for data in frames:
            connection.sendall(data)

    return speaks


@pytest.mark.parametrize("size", [0, 1, 255, 256, 100_000])
def test_an_answer_of_any_size_comes_back_whole(size: int) -> None:
    body = random.Random(size).randbytes(size)
    with peer(answering(zmtp.frame(b"", zmtp.MORE), zmtp.frame(body))) as connection:
        assert zmtp.Requester(connection, 20).ask(b"hello") == body


def test_commands_between_frames_are_passed_over() -> None:
    ping = bytes([zmtp.COMMAND, 7]) + b"\x04PING\0\0"
    with peer(answering(ping, zmtp.frame(b"", zmtp.MORE), ping, zmtp.frame(b"yes"))) as connection:
        assert zmtp.Requester(connection, 20).ask(b"hello") == b"yes"


@pytest.mark.parametrize(
    ("frames", "says"),
    [
        ((), "hung up"),
        ((zmtp.frame(b"alone"),), "1 parts"),
        ((zmtp.frame(b"", 1), zmtp.frame(b"a", 1), zmtp.frame(b"b")), "3 parts"),
        ((b"\x02" + struct.pack("!Q", 1 << 40),), "bytes"),
        ((b"\x00\x09short",), "hung up"),
    ],
)
def test_bad_answers_are_errors(frames: tuple[bytes, ...], says: str) -> None:
    with peer(answering(*frames)) as connection, pytest.raises(zmtp.ZmtpError, match=says):
        zmtp.Requester(connection, 20).ask(b"hello")


@pytest.mark.parametrize(
    ("greets", "says"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".ljust(64), "does not speak ZMTP 3"),
        (zmtp.greeting().replace(b"\x03\x00NULL", b"\x01\x00NULL"), "does not speak ZMTP 3"),
        (zmtp.greeting().replace(b"NULL\0\0\0\0", b"CURVE\0\0\0"), "credentials"),
        (zmtp.greeting() + b"\x04\x06\x05ERROR", "refuses"),
        (b"", "hung up"),
    ],
    ids=["http", "old", "curve", "error", "nothing"],
)
def test_a_peer_that_is_no_trex_is_an_error(greets: bytes, says: str) -> None:
    def speaks(connection: socket.socket) -> None:
        connection.sendall(greets)
        # Whoever goes without reading breaks the connection.
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1000)

    with peer(speaks) as connection, pytest.raises(zmtp.ZmtpError, match=says):
        zmtp.Requester(connection, 20)


def test_silence_is_an_error() -> None:
    def speaks(connection: socket.socket) -> None:
        connection.recv(10_000, socket.MSG_WAITALL)

    with peer(speaks) as connection:
        with pytest.raises(zmtp.ZmtpError, match="said nothing for 0.05 s"):
            zmtp.Requester(connection, 0.05)
        connection.shutdown(socket.SHUT_RDWR)
