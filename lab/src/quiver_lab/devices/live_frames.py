"""Frames that a BPF program hands to the kernel from within (BPF_PROG_TEST_RUN with live frames); run as a program of its own.

``live_frames.py pass SECONDS RATE SIZE MAC SOURCE DESTINATION`` gives the kernel IPv4 frames to forward, as if they had come
in on ``lo``, and prints how many in how long; RATE 0 is as fast as it goes. ``live_frames.py drop INTERFACE`` has an interface
drop what it receives before anything is made of it, prints ``ready``, and does so until it is ended. It needs nothing but the
standard library, root, and Linux 5.18.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import signal
import socket
import struct
import sys
import time

SYSCALL = {"x86_64": 321, "aarch64": 280}
PROG_LOAD, PROG_TEST_RUN, LINK_CREATE = 5, 10, 28
PROG_TYPE_XDP, ATTACH_XDP, DRIVER_MODE, LIVE_FRAMES = 6, 37, 4, 2
XDP_DROP, XDP_PASS = 1, 2
BATCH = 64
CALL = 1 << 12
"""Frames of one call: some milliseconds."""


def bpf(command: int, attributes: bytes) -> int:
    """Make the system call of that name, and return what it gives."""
    libc = ctypes.CDLL(None, use_errno=True)
    room = ctypes.create_string_buffer(attributes, 128)
    result = int(libc.syscall(SYSCALL[platform.machine()], command, room, len(attributes)))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def instruction(op: int, dst: int, src: int, offset: int, immediate: int) -> bytes:
    """One instruction of BPF."""
    return struct.pack("<BBhi", op, dst | src << 4, offset, immediate)


def frame(size: int, mac: str, source: str, destination: str) -> bytes:
    """An Ethernet frame without FCS, IPv4 and UDP, with the header's checksum."""
    fields = (0x45, 0, size - 14, 0, 0, 64, 17, 0, socket.inet_aton(source), socket.inet_aton(destination))
    header = struct.pack("!BBHHHBBH4s4s", *fields)
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    header = header[:10] + struct.pack("!H", 0xFFFF - total) + header[12:]
    udp = struct.pack("!HHHH", 1025, 12, size - 34, 0)
    ethernet = bytes.fromhex(mac.replace(":", "")) + bytes.fromhex("020000000101") + b"\x08\x00"
    return ethernet + header + udp + bytes(size - 42)


def passing(of: bytes) -> bytes:
    """A program that hands a frame on.

    The kernel sends the same memory again as whoever had it before left it: what forwarding writes is written first.
    """
    stores = [(0, 4), (4, 4), (8, 4), (22, 2), (24, 2)]
    op = {4: (0x62, "<i"), 2: (0x6A, "<H")}
    body = b"".join(
        instruction(op[size][0], 2, 0, at, struct.unpack(op[size][1], of[at : at + size])[0]) for at, size in stores
    )
    return (
        instruction(0x61, 2, 1, 0, 0)  # r2 = data
        + instruction(0x61, 3, 1, 4, 0)  # r3 = data_end
        + instruction(0xBF, 4, 2, 0, 0)  # r4 = r2
        + instruction(0x07, 4, 0, 0, 42)  # r4 += 42
        + instruction(0x2D, 4, 3, len(stores) + 2, 0)  # if r4 > r3: drop
        + body
        + returning(XDP_PASS)
        + returning(XDP_DROP)
    )


def returning(what: int) -> bytes:
    """The end of a program, or a whole one."""
    return instruction(0xB7, 0, 0, 0, what) + instruction(0x95, 0, 0, 0, 0)


def load(program: bytes) -> int:
    """Load a program; its descriptor."""
    code, licence = ctypes.create_string_buffer(program), ctypes.create_string_buffer(b"Apache-2.0")
    return bpf(
        PROG_LOAD,
        struct.pack("<IIQQIIQ", PROG_TYPE_XDP, len(program) // 8, ctypes.addressof(code), ctypes.addressof(licence), 0, 0, 0),
    )


def send(seconds: float, rate: float, of: bytes) -> dict[str, float]:
    """Hand frames to the kernel for so long; how many, and how long it took."""
    program, data = load(passing(of)), ctypes.create_string_buffer(of, len(of))

    def call(count: int) -> None:
        where = ctypes.addressof(data)
        run = (program, 0, len(of), 0, where, 0, count, 0, 0, 0, 0, 0, LIVE_FRAMES, 0, min(BATCH, count), 0)
        bpf(PROG_TEST_RUN, struct.pack("<IIIIQQIIIIQQIIII", *run))

    began, sent, now = time.monotonic(), 0, 0.0
    while now < seconds:
        # Once more when the time is over: who stood still meanwhile sends what is due all the same.
        now = time.monotonic() - began
        due = CALL if not rate else min(CALL, int(min(now, seconds) * rate) - sent)
        if due > 0:
            call(due)
            sent += due
    return {"sent": sent, "seconds": time.monotonic() - began}


def drop(interface: str) -> None:
    """Have an interface drop everything for as long as this process lives."""
    index = socket.if_nametoindex(interface)
    link = bpf(LINK_CREATE, struct.pack("<IIII", load(returning(XDP_DROP)), index, ATTACH_XDP, DRIVER_MODE))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    signal.pause()
    os.close(link)


if __name__ == "__main__":
    if sys.argv[1] == "drop":
        drop(sys.argv[2])
    else:
        made = frame(int(sys.argv[4]), *sys.argv[5:8])
        sys.stdout.write(json.dumps(send(float(sys.argv[2]), float(sys.argv[3]), made)) + "\n")
