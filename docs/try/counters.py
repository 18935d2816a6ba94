#!/usr/bin/env python3
"""Packets and bytes of each interface, and drops by reason, asked of a router over its JSON socket. Needs Python only."""

import json
import socket
import sys

router = socket.socket(socket.AF_UNIX)
router.connect(sys.argv[1] if len(sys.argv) > 1 else "/run/quiver/json.sock")
lines = router.makefile("rw")


def ask(operation, request=None):
    """Runs an operation and gives its reply."""
    lines.write(json.dumps({"op": operation, "request": request or {}}) + "\n")
    lines.flush()
    reply = json.loads(lines.readline())
    if reply["status"] != "ok":
        sys.exit(reply["text"])
    return reply["data"]


for interface in ask("interfaces_show")["interfaces"]:
    counters = dict(interface["counters"])
    print(interface["name"], *(f"{name} {counters[name]}" for name in ("rx packets", "rx bytes", "drops")), sep="  ")
for row in ask("errors_show")["total"]:
    print(row["node"], row["reason"], row["count"], sep="  ")
