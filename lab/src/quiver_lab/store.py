"""A campaign's results as files: written once, whole or not at all, never changed.

::

    OUT/campaign.yaml                     the campaign as it was given
    OUT/machine.json                      the machine that it runs on
    OUT/origin.json                       the commands that made it, and of which commit
    OUT/evidence.json                     of some reproductions: what the repository's benches say of instructions
    OUT/testbeds/NAME.json                of testbeds that are described in files: what they are, and their machines
    OUT/trials/CELL/r00-a0-0000.json      one a trial
    OUT/runs/CELL/r00-a0.json             one a run
    OUT/stateful/CELL/r00-a0.json         one a measurement of a connection table, of which such a run is made

A file under its final name is complete: it is written beside it and renamed.
"""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from quiver_lab import campaign as campaigns
from quiver_lab import origin
from quiver_lab.campaign import Campaign
from quiver_lab.records import RunId, RunRecord, StatefulRecord, TrialRecord
from quiver_lab.trial import Trial

R = TypeVar("R", bound=BaseModel)


class StoreError(RuntimeError):
    """Results that do not fit together; one line."""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    with part.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _json(record: BaseModel) -> str:
    return json.dumps(record.model_dump(mode="json", by_alias=True), indent=1, sort_keys=True) + "\n"


def _differ(a: dict[str, Any], b: dict[str, Any], place: str = "") -> Iterator[str]:
    for key in {*a, *b}:
        x, y = a.get(key), b.get(key)
        if isinstance(x, dict) and isinstance(y, dict):
            yield from _differ(x, y, f"{place}{key}.")
        elif x != y:
            yield f"{place}{key}"


class Store:
    """The folder of one campaign."""

    def __init__(self, root: Path, campaign: Campaign, text: str) -> None:
        self.root = root
        self.campaign = campaign
        self.digest = campaigns.digest(text)

    @classmethod
    def create(cls, root: Path, campaign: Campaign, text: str, machine: dict[str, Any], *, resume: bool) -> Store:
        """Begin a campaign in an empty folder, or go on in one that holds the same campaign of the same machine."""
        file = root / "campaign.yaml"
        if file.exists():
            if not resume:
                raise StoreError(f"{root} holds a campaign already: --resume goes on with it, or give another folder")
            if file.read_text(encoding="utf-8") != text:
                raise StoreError(f"{root} holds another campaign (its campaign.yaml differs): give another folder")
            before = json.loads((root / "machine.json").read_text(encoding="utf-8"))
            changed = [k for k in before if before[k] != machine.get(k)]
            if changed:
                raise StoreError(
                    f"{root} was begun on another machine ({', '.join(changed)} differ): results would not compare"
                )
        else:
            if root.exists() and any(root.iterdir()):
                raise StoreError(f"{root} is neither empty nor a campaign: give another folder")
            _write(root / "machine.json", json.dumps(machine, indent=1, sort_keys=True) + "\n")
            # Last: a folder with this file is a campaign.
            _write(file, text)
        return cls(root, campaign, text)

    @classmethod
    def open(cls, root: Path) -> Store:
        """Open a campaign for reading."""
        try:
            campaign, text = campaigns.load(root / "campaign.yaml")
        except campaigns.CampaignError as error:
            raise StoreError(f"{root} is no campaign's folder: {error}") from error
        return cls(root, campaign, text)

    @property
    def machine(self) -> dict[str, Any]:
        """The machine that the campaign ran on."""
        loaded: dict[str, Any] = json.loads((self.root / "machine.json").read_text(encoding="utf-8"))
        return loaded

    def put_origin(self, call: origin.Origin) -> None:
        """Remember a call that made or goes on with this campaign; the same as the one before is said once."""
        known = self.origins
        if not known or known[-1] != call:
            _write(self.root / origin.FILE, _json(origin.Origins(calls=(*known, call))))

    @property
    def origins(self) -> tuple[origin.Origin, ...]:
        """The calls that made this campaign; of results of an earlier version of the lab nothing."""
        path = self.root / origin.FILE
        if not path.exists():
            return ()
        try:
            return origin.Origins.model_validate_json(path.read_text(encoding="utf-8")).calls
        except ValidationError as error:
            raise StoreError(f"{path}: {' '.join(str(error).split())[:300]}") from error

    def put_testbed(self, name: str, facts: dict[str, Any]) -> None:
        """Store what a testbed is; one that was another when the campaign was begun is an error."""
        path = self.root / "testbeds" / f"{name}.json"
        if path.exists():
            before = json.loads(path.read_text(encoding="utf-8"))
            if changed := sorted(_differ(before, facts)):
                raise StoreError(f"testbed {name} is not as it was ({', '.join(changed)} differ): results would not compare")
            return
        _write(path, json.dumps(facts, indent=1, sort_keys=True) + "\n")

    @property
    def testbeds(self) -> dict[str, dict[str, Any]]:
        """What the described testbeds are, by name."""
        files = sorted((self.root / "testbeds").glob("*.json"))
        return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}

    def _trial_path(self, run: RunId, ordinal: int) -> Path:
        return self.root / "trials" / run.cell.slug / f"r{run.repeat:02}-a{run.attempt}-{ordinal:04}.json"

    def _run_path(self, run: RunId) -> Path:
        return self.root / "runs" / run.cell.slug / f"r{run.repeat:02}-a{run.attempt}.json"

    def put_trial(self, record: TrialRecord) -> None:
        """Store a trial."""
        _write(self._trial_path(record.run, record.ordinal), _json(record))

    def put_run(self, record: RunRecord) -> None:
        """Store a run."""
        _write(self._run_path(record.run), _json(record))

    def _stateful_path(self, run: RunId) -> Path:
        return self.root / "stateful" / run.cell.slug / f"r{run.repeat:02}-a{run.attempt}.json"

    def put_stateful(self, record: StatefulRecord) -> None:
        """Store a measurement of a connection table."""
        _write(self._stateful_path(record.run), _json(record))

    def stateful(self, run: RunId) -> StatefulRecord | None:
        """A run's measurement of a connection table, where it is done."""
        path = self._stateful_path(run)
        return self._read(path, StatefulRecord) if path.exists() else None

    def statefuls(self) -> Iterator[StatefulRecord]:
        """All measurements of connection tables, in the order of their names."""
        for path in sorted((self.root / "stateful").glob("*/r*.json")):
            yield self._read(path, StatefulRecord)

    def trial(self, run: RunId, ordinal: int) -> TrialRecord | None:
        """One trial, where it is done."""
        path = self._trial_path(run, ordinal)
        return self._read(path, TrialRecord) if path.exists() else None

    def run(self, run: RunId) -> RunRecord | None:
        """One run, where it is done."""
        path = self._run_path(run)
        return self._read(path, RunRecord) if path.exists() else None

    def runs(self) -> Iterator[RunRecord]:
        """All runs, in the order of their names."""
        for path in sorted((self.root / "runs").glob("*/r*.json")):
            yield self._read(path, RunRecord)

    def trials(self) -> Iterator[TrialRecord]:
        """All trials, in the order of their names."""
        for path in sorted((self.root / "trials").glob("*/r*.json")):
            yield self._read(path, TrialRecord)

    def _read(self, path: Path, kind: type[R]) -> R:
        try:
            text = path.read_text(encoding="utf-8")
            record = kind.model_validate_json(text)
        except (OSError, ValidationError) as error:
            if isinstance(error, ValidationError) and '"quiver-lab-run/1"' in text:
                raise StoreError(
                    f"{path}: an earlier version counted frames that were never sent as lost. Trials are as they were: "
                    f"delete {self.root / 'runs'} and go on with --resume, which takes them from the folder"
                ) from error
            raise StoreError(f"{path}: {' '.join(str(error).split())[:300]}") from error
        if getattr(record, "campaign_digest", None) != self.digest:
            raise StoreError(f"{path} belongs to another campaign")
        return record

    def export_parquet(self, path: Path) -> int:
        """Write one row a trial and direction for analysis elsewhere; returns the number of rows."""
        import polars  # noqa: PLC0415  (half a second that no other command needs)

        rows: list[dict[str, Any]] = []
        for record in self.trials():
            trial = Trial.model_validate(record.trial)
            for d in trial.directions:
                latency = d.latency_ns
                rows.append(
                    {
                        **record.run.cell.model_dump(),
                        "campaign": record.campaign, "quick": record.quick, "testbed": record.testbed,
                        "repeat": record.run.repeat,
                        "attempt": record.run.attempt, "ordinal": record.ordinal, "direction": d.name,
                        "rate_pps": record.rate_pps, "duration_s": record.duration_s, "valid": trial.valid,
                        "intended": d.intended, "sent": d.sent, "received": d.received, "lost": d.lost, "unsent": d.unsent,
                        "reordered": d.reordered, "duplicated": d.duplicated,
                        "latency_min_ns": latency.min if latency else None,
                        "latency_mean_ns": latency.mean if latency else None,
                        "latency_p99_ns": latency.p99 if latency else None,
                        "latency_max_ns": latency.max if latency else None,
                        "jitter_ns": d.jitter_ns,
                        "energy_j": record.energy.joules if record.energy else None,
                    }
                )  # fmt: skip
        polars.DataFrame(rows, infer_schema_length=None).write_parquet(path)
        return len(rows)

    def archive(self, path: Path) -> int:
        """Pack everything that a report needs into one file; returns the number of files."""
        files = [self.root / "campaign.yaml", self.root / "machine.json"]
        files += [f for f in (self.root / origin.FILE, self.root / "evidence.json") if f.exists()]
        files += sorted((self.root / "testbeds").glob("*.json"))
        files += [f for kind in ("trials", "stateful", "runs") for f in sorted((self.root / kind).glob("*/r*.json"))]

        def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
            # The same results make the same archive.
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            return info

        with tarfile.open(path, "w:xz") as tar:
            for file in files:
                tar.add(file, arcname=f"{self.campaign.name}/{file.relative_to(self.root)}", filter=plain)
        return len(files)
