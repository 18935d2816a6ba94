"""TRex's JSON-RPC: one call, one result; what its server refuses is a ``TesterError`` with its own words."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any, Protocol

from quiver_lab.client import TesterError
from quiver_lab.stl.zmtp import ZmtpError

API = {"name": "STL", "major": 5, "minor": 0}
"""What we speak (TRex 3.08 has 5.1); a server of another major version refuses it."""

TRY_AGAIN = -32001
AGAIN_S = 10.0
"""For how long a busy server is asked again."""


class Asks(Protocol):
    """Takes a request to the server and its answer back."""

    def ask(self, request: bytes) -> bytes:
        """Send a request and wait for its answer."""


class Rpc:
    """Calls of a server's methods."""

    def __init__(self, link: Asks) -> None:
        """Agree on the version."""
        self._link = link
        self._count = 0
        self._handle: str | None = None
        agreed = self.call("api_sync_v2", API)
        if not isinstance(agreed, dict) or not isinstance(agreed.get("api_h"), str):
            raise TesterError(f"TRex's answer to api_sync_v2 is none: {str(agreed)[:200]}")
        self._handle = agreed["api_h"]

    def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401  (whatever JSON has)
        """The result of a method; a busy server is asked again for a while."""
        until = time.monotonic() + AGAIN_S
        while True:
            answer = self._once(method, dict(params or {}))
            error = answer.get("error")
            if error is None and "result" in answer:
                return answer["result"]
            if not isinstance(error, dict):
                raise TesterError(f"TRex's answer to {method} is none: {str(answer)[:200]}")
            if error.get("code") != TRY_AGAIN or time.monotonic() > until:
                said = error.get("specific_err") or error.get("message") or error
                raise TesterError(f"TRex refuses {method}: {' '.join(str(said).split())[:300]}")
            time.sleep(0.05)

    def _once(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self._count += 1
        if self._handle is not None:
            params["api_h"] = self._handle
        request = {"jsonrpc": "2.0", "method": method, "id": self._count, "params": params}
        try:
            answer = json.loads(self._link.ask(json.dumps(request).encode()))
        except ZmtpError as error:
            raise TesterError(f"TRex does not answer {method}: {error}") from error
        except ValueError as error:
            raise TesterError(f"TRex's answer to {method} is none: {' '.join(str(error).split())[:200]}") from error
        if not isinstance(answer, dict) or answer.get("id") != self._count:
            raise TesterError(f"TRex's answer to {method} is none: {str(answer)[:200]}")
        return answer
