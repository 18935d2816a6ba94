"""Empties the kernel's connection table in the network namespace that it runs in, as ``conntrack -F`` does.

A program of its own that imports nothing of this package: the tester starts it before each step, and its start counts.
"""

from __future__ import annotations

import os
import socket
import struct
import sys

NETLINK_NETFILTER = 12
DELETE = 1 << 8 | 2
"""Subsystem ctnetlink, message ``IPCTNL_MSG_CT_DELETE``; without a tuple it means all entries."""
REQUEST_ACK = 0x5
ERROR = 2


def flush() -> None:
    """Empty the table; an error of the kernel's is an ``OSError``."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_NETFILTER) as netlink:
        netlink.bind((0, 0))
        # Message header, then family (any), version and resource of nfnetlink.
        netlink.send(struct.pack("=IHHIIBBH", 20, DELETE, REQUEST_ACK, 1, 0, 0, 0, 0))
        answer = netlink.recv(4096)
    _, kind, _, _, _, status = struct.unpack_from("=IHHIIi", answer)
    if kind != ERROR or status:
        raise OSError(-status, os.strerror(-status) if status < 0 else "an answer that is none")


if __name__ == "__main__":
    try:
        flush()
    except OSError as problem:
        sys.exit(f"the connection table cannot be emptied: {problem.strerror or problem}")
