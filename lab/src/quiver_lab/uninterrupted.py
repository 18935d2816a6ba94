"""Loaded by workers of a cluster of this machine (Dask's ``preload``): Ctrl-C at a terminal goes to them as well.

Who asked for the work decides what Ctrl-C means: the trials in flight are ended in order, and then the workers.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_IGN)
