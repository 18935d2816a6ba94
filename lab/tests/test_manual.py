"""The manual page and the completion have every command, and bash runs the completion."""

from __future__ import annotations

import subprocess
from pathlib import Path

from quiver_lab import manual


def offered(folder: Path, *words: str) -> list[str]:
    script = folder / "quiver-lab.bash"
    script.write_text(manual.completion())
    (folder / "campaign.yaml").touch()
    program = f'. {script}; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _quiver_lab; printf "%s\\n" "${{COMPREPLY[@]}}"'
    shell = subprocess.run(
        ["bash", "-c", program, "bash", "quiver-lab", *words], capture_output=True, text=True, check=True, cwd=folder
    )
    assert shell.stderr == ""
    return shell.stdout.split()


def test_the_page_has_every_command_with_its_options() -> None:
    page = manual.page()
    assert {"run", "plan", "report", "reproduce"} <= {command.name for command in manual.commands()}
    for command in manual.commands():
        assert f".SS {manual.roff(command.name)}" in page
        for option in command.options():
            assert manual.roff(option) in page


def test_bash_completes_commands_options_and_files(tmp_path: Path) -> None:
    assert sorted(offered(tmp_path, "rep")) == ["report", "reproduce"]
    assert offered(tmp_path, "run", "--res") == ["--resume"]
    assert offered(tmp_path, "run", "camp") == ["campaign.yaml"]


def test_no_markup_that_was_not_meant() -> None:
    assert manual.roff(".a-b \\ `c'") == "\\&.a\\-b \\e \\(gac\\(aq"
