"""The manual page of quiver-lab and its completion for bash, from the definitions of its commands.

python -m quiver_lab.manual FOLDER     writes quiver-lab.1 and quiver-lab.bash
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import typer

from quiver_lab import __version__
from quiver_lab.cli import app


@dataclass(frozen=True)
class Parameter:
    """An argument, or an option with its names."""

    names: tuple[str, ...]
    is_option: bool
    takes_value: bool
    required: bool
    help: str


@dataclass(frozen=True)
class Command:
    """A command with what it takes."""

    name: str
    help: str
    parameters: tuple[Parameter, ...]

    def options(self) -> list[str]:
        """The names of its options."""
        return [name for parameter in self.parameters if parameter.is_option for name in parameter.names]


def commands() -> list[Command]:
    """All commands, by name."""
    group = typer.main.get_group(app)
    found = []
    for name, command in sorted(group.commands.items()):
        if command.hidden:
            continue
        parameters = tuple(
            Parameter(
                names=(*parameter.opts, *parameter.secondary_opts),
                is_option=parameter.param_type_name == "option",
                takes_value=not getattr(parameter, "is_flag", False),
                required=parameter.required,
                help=str(getattr(parameter, "help", None) or ""),
            )
            for parameter in command.params
        )
        found.append(Command(name, (command.help or "").strip(), parameters))
    return found


def roff(text: str) -> str:
    """A text in which man finds no markup of its own."""
    for character, written in (("\\", "\\e"), ("-", "\\-"), ("'", "\\(aq"), ("`", "\\(ga")):
        text = text.replace(character, written)
    return f"\\&{text}" if text.startswith(".") else text


def page() -> str:
    """The manual page."""
    lines = [
        f'.TH QUIVER-LAB 1 "" "Quiver {__version__}" "Measuring routers"',
        ".SH NAME",
        "quiver\\-lab \\- measures software routers in campaigns",
        ".SH SYNOPSIS",
        ".B quiver\\-lab",
        "\\fICOMMAND\\fR [\\fIARGUMENT\\fR ...]",
        ".SH DESCRIPTION",
        "Runs campaigns of measurements, reports them, and sets published values beside them.",
        ".SH COMMANDS",
    ]
    for command in commands():
        arguments = [p for p in command.parameters if not p.is_option]
        synopsis = " ".join(
            f"\\fI{p.names[0].upper()}\\fR" if p.required else f"[\\fI{p.names[0].upper()}\\fR]" for p in arguments
        )
        lines += [f".SS {roff(command.name)} {synopsis}".rstrip(), roff(" ".join(command.help.split()))]
        for parameter in command.parameters:
            names = ", ".join(f"\\fB{roff(name)}\\fR" for name in parameter.names)
            value = " \\fIVALUE\\fR" if parameter.takes_value else ""
            head = f"{names}{value}" if parameter.is_option else f"\\fI{parameter.names[0].upper()}\\fR"
            lines += [".TP", head, roff(parameter.help)]
    lines += [".SH SEE ALSO", ".BR quiver (8),", ".BR quiver\\-tester (1)"]
    return "\n".join(line for line in lines if line) + "\n"


def completion() -> str:
    """The completion for bash: commands, their options, and files."""
    cases = "".join(f"    {command.name}) words='{' '.join(command.options())}' ;;\n" for command in commands())
    names = " ".join(command.name for command in commands())
    return f"""# Completion of quiver-lab's commands and their options.
_quiver_lab() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} words=
  case ${{COMP_WORDS[1]}} in
{cases}  esac
  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W '{names}' -- "$current")
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$current")
  fi
}}
complete -o filenames -F _quiver_lab quiver-lab
"""


def main() -> None:
    """Writes both to the folder that the command line names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "quiver-lab.1").write_text(page())
    (folder / "quiver-lab.bash").write_text(completion())


if __name__ == "__main__":
    main()
