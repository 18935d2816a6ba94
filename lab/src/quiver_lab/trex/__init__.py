"""Profiles written for TRex's stateless mode, loaded as they stand and put into the tester's own form.

::

    profile.py ── from trex_stl_lib.api import * ──► our names of the same spelling (``api``) ──► streams ──► ``emit`` ──► YAML

A profile is a Python program and is run as one. Its names come from :mod:`quiver_lab.trex.api`: headers of our own
(:mod:`quiver_lab.trex.packets`), so neither TRex nor scapy is needed or imported.
"""

from quiver_lab.trex.emit import EmitError, emit, text
from quiver_lab.trex.load import LoadError, load

__all__ = ["EmitError", "LoadError", "emit", "load", "text"]
