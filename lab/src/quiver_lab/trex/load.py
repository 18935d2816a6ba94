"""Runs a profile's program and asks it for its streams."""

from __future__ import annotations

import inspect
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from quiver_lab.trex import api


class LoadError(ValueError):
    """A profile that cannot be run or gives no streams; one line."""


ALIASES = ("trex_stl_lib.api", "trex.stl.api")
"""Names of TRex's package, of earlier and of later versions."""


@contextmanager
def _aliases() -> Iterator[None]:
    """Our names under TRex's, as long as a profile is run."""
    names = {name.rsplit(".", depth)[0] for name in ALIASES for depth in range(3)}
    before = {name: sys.modules.get(name) for name in names}
    try:
        for name in names:
            sys.modules[name] = api if name in ALIASES else ModuleType(name)
        yield
    finally:
        for name, module in before.items():
            if module is None:
                sys.modules.pop(name, None)
            else:
                sys.modules[name] = module


def load(file: Path, direction: int, tunables: Sequence[str] = ()) -> list[api.STLStream]:
    """The streams that a profile has for a direction: 0 from the left, 1 from the right.

    ``tunables`` go to the profile as they are. The profile is run, with all that its author wrote into it. Raises LoadError.
    """
    given = {"direction": direction, "port_id": direction, "tunables": list(tunables)}
    try:
        with _aliases():
            register = runpy.run_path(str(file)).get("register")
            if not callable(register):
                raise LoadError(f"{file}: no profile: it has no function `register'")
            get_streams = register().get_streams
            parameters = inspect.signature(get_streams).parameters
            if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                given = {name: value for name, value in given.items() if name in parameters}
            streams: Any = get_streams(**given)
    except LoadError:
        raise
    except SystemExit as error:
        raise LoadError(f"{file}: the profile does not take {' '.join(tunables) or 'no tunables'}") from error
    except Exception as error:
        raise LoadError(f"{file}: {type(error).__name__}: {' '.join(str(error).split())}") from error
    if isinstance(streams, api.STLProfile):
        streams = streams.get_streams()
    found = [streams] if isinstance(streams, api.STLStream) else list(streams)
    if not found or not all(isinstance(s, api.STLStream) for s in found):
        raise LoadError(f"{file}: `get_streams' gives no list of streams")
    return found
