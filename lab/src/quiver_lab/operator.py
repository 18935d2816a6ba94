"""Whoever configures a device by hand."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence


class OperatorError(RuntimeError):
    """Nobody who could configure; one line."""


class Operator(ABC):
    """Is told what to configure, once as long as it stays the same."""

    def __init__(self) -> None:
        self._last: tuple[str, ...] | None = None

    def configure(self, instructions: Sequence[str]) -> None:
        """Return when the device is configured so."""
        if tuple(instructions) != self._last:
            self.forget()
            self.told(instructions)
            self._last = tuple(instructions)

    def forget(self) -> None:
        """Ask again next time: what was configured did not work."""
        self._last = None

    @abstractmethod
    def told(self, instructions: Sequence[str]) -> None:
        """Tell, and wait for the word to go on."""


class Nobody(Operator):
    """There is no operator."""

    def told(self, instructions: Sequence[str]) -> None:
        """Refuse."""
        raise OperatorError("a device that is configured by hand needs an operator at a terminal, or --yes where it is done")


class AtTerminal(Operator):
    """Prints, and waits for Enter; or only prints."""

    def __init__(self, say: Callable[[str], None], wait: Callable[[], str] | None) -> None:
        super().__init__()
        self._say = say
        self._wait = wait

    def told(self, instructions: Sequence[str]) -> None:
        """Print the instructions as a list."""
        self._say("configure the external device:")
        for line in instructions:
            self._say(f"  - {line}")
        if self._wait is None:
            return
        self._say("press Enter when that is done (Ctrl-C ends; --resume goes on)")
        try:
            self._wait()
        except EOFError:
            raise OperatorError("nobody is at the terminal to say that the device is configured; --yes says so") from None
