"""Trials by Cisco TRex in its stateless mode (STL), which the operator has installed.

::

    TrexTester (tester) ── streams of a profile (streams) ──► JSON-RPC (rpc) over ZMTP (zmtp) ──► _t-rex-64 (server)
                       ◄── counters ───────────────────────

Nothing of TRex is imported or shipped: its server is asked over its socket. Why: ``docs/decisions/0086-trex-as-tester.md``.
Profiles that were written for TRex are another subject (``quiver_lab.trex``).
"""

from quiver_lab.stl.server import Place, absent
from quiver_lab.stl.tester import TrexTester, make

__all__ = ["Place", "TrexTester", "absent", "make"]
