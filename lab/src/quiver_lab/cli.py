"""The command line."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from quiver_lab import (
    __version__,
    beds,
    campaign,
    doctor,
    facts,
    findings,
    hardware,
    origin,
    published,
    runner,
    spread,
    trex,
    units,
)
from quiver_lab import worker as workers
from quiver_lab.cluster import places
from quiver_lab.devices import external
from quiver_lab.operator import AtTerminal
from quiver_lab.records import RunId, RunRecord
from quiver_lab.store import Store, StoreError
from quiver_lab.trial import Trial

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help="Quiver's measurement lab.")
out = Console(soft_wrap=True)
err = Console(stderr=True, soft_wrap=True)

CampaignFile = Annotated[Path, typer.Argument(help="campaign file (YAML)")]
Results = Annotated[Path, typer.Argument(help="folder of a campaign's results")]


def clock(seconds: float) -> str:
    """A time as a person says it: 3 h 05 min, 4 min 10 s, 9 s."""
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02} min"
    return f"{whole // 60} min {whole % 60:02} s" if whole >= 60 else f"{whole} s"


class _Lines(runner.Progress):
    """One line a run; on a terminal, one line that changes with each trial."""

    def __init__(self, *, absent: bool = True) -> None:
        self.absent = absent
        """Whether to name each cell that cannot be measured."""
        self.left = ""
        self.began = time.monotonic()

    def idle(self, watts: float, meter: str) -> None:
        err.print(f"idle: {watts:.4g} W ({meter})", highlight=False, markup=False)

    def begin(self, run: RunId, done_s: float, total_s: float) -> None:
        self.left = f"{clock(total_s - done_s)} left" if total_s else ""

    def trial(self, run: RunId, ordinal: int, trial: Trial, rate_pps: float) -> None:
        if err.is_terminal:
            unsent = f", {trial.unsent_ratio * 100:.3g} % not sent" if trial.unsent else ""
            err.print(
                f"\r\x1b[K{run.cell.slug} repeat {run.repeat + 1}: trial {ordinal + 1}, {units.si(rate_pps, 'pps')}, "
                f"{trial.loss_ratio * 100:.3g} % lost{unsent}; {self.left}", end="", highlight=False, markup=False,
            )  # fmt: skip

    def ended(self, record: RunRecord) -> None:
        if record.status == "absent" and not self.absent:
            return
        value = record.values.get(record.primary)
        if record.status != "done":
            said = f"{record.status}: {record.why}"
        else:
            said = f"{record.primary} " + ("none" if value is None else units.si(value))
            said += "" if record.valid else " (not valid)"
        lead = "\r\x1b[K" if err.is_terminal else ""
        again = f", attempt {record.run.attempt + 1}" if record.run.attempt else ""
        err.print(
            f"{lead}{record.run.cell.slug} repeat {record.run.repeat + 1}{again}: {said}; {self.left}",
            highlight=False, markup=False,
        )  # fmt: skip


def outcome(records: Sequence[RunRecord], folder: Path) -> str:
    """How a campaign ended, in one line."""
    done = [r for r in records if r.status == "done"]
    spoilt = sum(1 for r in done if not r.valid)
    failed = sum(1 for r in records if r.status == "failed")
    said = f"{len(done)} runs in {folder}"
    if spoilt:
        said += ", none of them valid (the report says why)" if spoilt == len(done) else f", {spoilt} of them not valid"
    return said + (f", {failed} failed (--resume tries them again)" if failed else "")


def _say(line: str) -> None:
    err.print(line, highlight=False, markup=False)


@app.command()
def instructions(file: CampaignFile) -> None:
    """Print how the device 'external' has to be configured for each scenario of a campaign. Starts nothing."""
    c, _ = campaign.load(file)
    if c.testbed.external is None:
        raise ValueError(f"{file}: testbed.external does not say which ports lead to the box")
    cells: dict[tuple[str, ...], list[str]] = {}
    for p in runner.plan(c):
        if p.cell.dut == "external" and p.absent is None:
            cells.setdefault(tuple(external.instructions(p.cell, c.testbed.external)), []).append(p.cell.slug)
    for number, (lines, slugs) in enumerate(cells.items(), 1):
        out.print(f"scenario {number} of {len(cells)}, for {', '.join(slugs)}:", highlight=False, markup=False)
        for line in lines:
            out.print(f"  - {line}", highlight=False, markup=False)


@app.command()
def plan(file: CampaignFile) -> None:
    """Show what a campaign would run, and for how long. Starts nothing."""
    c, _ = campaign.load(file)
    (bed,) = beds.of(c, file.parent)
    planned = runner.plan(bed.campaign)
    out.print(f"{c.name}: {len(planned)} cells × {c.repeats} repeats", highlight=False)
    for p in planned:
        cost = f"absent: {p.absent}" if p.absent else f"at most {p.trials} trials a run, about {clock(p.seconds)}"
        out.print(f"  {p.cell.slug}: {cost}", highlight=False, markup=False)
    here = [p for p in planned if p.absent is None]
    trials, seconds = (sum(getattr(p, key) for p in here) * c.repeats for key in ("trials", "seconds"))
    quick = ", shorter than the RFCs ask for (quick)" if c.quick else ""
    out.print(
        f"{len(here)} cells can be measured here: at most {trials} trials, about {clock(seconds)}{quick}",
        highlight=False,
    )


@app.command()
def run(
    file: CampaignFile,
    to: Annotated[Path, typer.Option("--out", help="folder for the results")],
    *,
    resume: Annotated[bool, typer.Option("--resume", help="go on with what is there")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="the external device is configured: do not wait")] = False,
    testbeds: Annotated[
        list[Path] | None,
        typer.Option("--testbed", help="testbed's file, in place of the campaign's own; several share the work"),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TESTBED=]local|COMMAND",
            help="have a worker process make the runs: on this machine, or where a command starts `quiver-lab worker' "
            "(a=ssh lab@192.0.2.9 quiver-lab worker); may be repeated",
        ),
    ] = None,
) -> None:
    """Run a campaign. Ctrl-C loses the trial in flight only: --resume goes on."""
    c, text = campaign.load(file)
    chosen = beds.of(c, file.parent, testbeds or [])
    store = Store.create(to, c, text, facts.machine(), resume=resume)
    store.put_origin(origin.of_call(sys.argv[1:]))
    try:
        if cluster:
            with places(chosen, text, cluster) as there:
                spread.run(store, there, _Lines(), _say)
        elif chosen[0].described:
            spread.run(store, [spread.Here(bed) for bed in chosen], _Lines(), _say)
        else:
            runner.Runner(store, _Lines(), operator=AtTerminal(_say, None if yes else input)).run()
    except KeyboardInterrupt:
        more = "".join(f" --testbed {bed}" for bed in testbeds or [])
        more += "".join(f" --cluster {shlex.quote(word)}" for word in cluster or [])
        err.print(f"\nstopped; go on with: quiver-lab run {file} --out {to}{more} --resume", highlight=False, markup=False)
        raise typer.Exit(130) from None
    records = list(store.runs())
    out.print(outcome(records, to), highlight=False)
    if {r.status for r in records} & {"done", "failed"} == {"failed"}:
        raise typer.Exit(1)


@app.command()
def worker() -> None:
    """Make runs for the lab that started this (run --cluster), which speaks to it by standard input and output."""
    workers.main()


@app.command()
def reproduce(
    paper: Annotated[str, typer.Argument(help=", ".join(published.PAPERS))],
    *,
    quick: Annotated[bool, typer.Option("--quick", help="every row and column, but short trials and few repeats")] = False,
    to: Annotated[Path | None, typer.Option("--out", help="folder for results and report")] = None,
    plan_only: Annotated[bool, typer.Option("--plan", help="show what would run and for how long; start nothing")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="go on with what is there")] = False,
    scale: Annotated[
        str | None, typer.Option(help="what all rates are multiplied by, such as 1/200; measured otherwise")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="key=value: cells of this call; --resume runs the others")] = None,
    tester_core: Annotated[int, typer.Option(help="core of the tester")] = 0,
    dut_cores: Annotated[str, typer.Option(help="cores of the device, the main thread's first")] = "1",
    sender: Annotated[str, typer.Option(help="the tester's ports on veth: af-packet or xdp")] = "xdp",
    candidate: Annotated[str, typer.Option(help="device that takes the place of the paper's")] = "quiver",
    control: Annotated[
        str, typer.Option(help="one that takes it beside the candidate, such as fdio-vpp: the positive control")
    ] = "",
    bench: Annotated[Path | None, typer.Option(help="figures of scripts/bench; else the checkout's docs/figures")] = None,
    testbed: Annotated[
        Path | None, typer.Option("--testbed", help="two hosts with wires between them (YAML), in place of this machine")
    ] = None,
    meter: Annotated[str, typer.Option(help="what counts the device's energy: rapl, ipmi, pdu:HOST:OUTLET,OUTLET")] = "",
) -> None:
    """Rebuild a paper's campaign on this machine or on two hosts, and lay its results beside what the paper prints."""
    from quiver_lab.reproduce import Options, command, counters, place  # noqa: PLC0415  (slow to import)

    try:
        cores = tuple(int(n) for n in dut_cores.split(","))
    except ValueError:
        raise ValueError(f"--dut-cores '{dut_cores}': numbers with commas between") from None
    if control in (candidate, "linux"):
        raise ValueError(f"--control {control} is measured already: name another device, such as fdio-vpp")
    where = place.of(testbed)
    options = where.options(
        Options(
            quick=quick, candidate=candidate, control=control, tester_core=tester_core, dut_cores=cores, sender=sender,
            meter=place.parse_meter(meter),
            perf=not hardware.lacking(),
        )
    )  # fmt: skip
    chosen = command.parse_only(only or [])
    if to is None and not plan_only:
        raise StoreError("give --out, a folder for results and report, or --plan")
    if to is not None and not plan_only and not resume and (to / "campaign.yaml").exists():
        raise StoreError(f"{to} holds a campaign already: --resume goes on with it, or give another folder")
    measure = None if plan_only else where.calibrate
    design, c, text = command.begin(paper, options, to, scale=scale, resume=resume, measure=measure)
    bed = where.bed_of(c, testbed)
    planned = command.choose(runner.plan(bed.campaign), only or [])
    for line in command.summary(c, planned, clock):
        out.print(line, highlight=False, markup=False)
    out.print(f"scale of all rates: {c.scale.factor:.6g} ({c.scale.reason})", highlight=False, markup=False)
    for link, own in c.scale.links.items():
        out.print(f"  on {link}: {own.factor:.6g} ({own.reason})", highlight=False, markup=False)
    if plan_only:
        return
    assert to is not None
    store = command.create(to, c, text, resume=resume)
    store.put_origin(origin.of_call(sys.argv[1:]))
    if design.counters:
        counters.keep(store, bench)
    try:
        where.run(store, bed, _Lines(absent=False), chosen)
    except KeyboardInterrupt:
        more = f" --testbed {testbed}" if testbed else ""
        again = f"quiver-lab reproduce {paper}{' --quick' if c.quick else ''} --out {to}{more} --resume"
        err.print(f"\nstopped; go on with: {again}", highlight=False, markup=False)
        raise typer.Exit(130) from None
    from quiver_lab.report import build  # noqa: PLC0415  (slow to import)
    from quiver_lab.reproduce import page  # noqa: PLC0415

    build(store, to / "report")
    path, judgements = page.build(store, design, to / "report")
    for j in judgements:
        out.print(
            f"{j.verdict.value:20} {j.finding.id}{f' ({j.ports})' if j.ports else ''}: {j.why}", highlight=False, markup=False
        )
    out.print(str(path), highlight=False, markup=False)


@app.command()
def redraw(
    paper: Annotated[str, typer.Argument(help=", ".join(published.PAPERS))],
    folder: Annotated[Path, typer.Argument(help="folder with a reproduction's beside.csv")],
) -> None:
    """Draw a reproduction's table anew, and a README.md that shows the drawings; no results are needed."""
    from quiver_lab.reproduce import design, gallery  # noqa: PLC0415  (slow to import)

    paths = gallery.write(design(paper), folder)
    out.print(f"{len(paths)} drawings in {folder}", highlight=False)


@app.command()
def verdicts(
    paper: Annotated[str, typer.Argument(help=", ".join(published.PAPERS))],
    results: Annotated[Path | None, typer.Argument(help="results; without them, the published values themselves")] = None,
    candidate: Annotated[str, typer.Option(help="device that takes the place of the paper's")] = "quiver",
) -> None:
    """Hold a paper's findings against results, each with the interval that its verdict rests on."""
    if results is None:
        measured, name = findings.from_published(published.load(paper)), "candidate"
    else:
        measured, name = runs_as_measured(Store.open(results)), candidate
    for finding in findings.load(paper):
        judgement = findings.judge(finding, measured, candidate=name)
        out.print(f"{judgement.verdict.value:20} {finding.id}", highlight=False, markup=False)
        out.print(f"    {finding.text} (seed {finding.seed}, line {finding.line})", highlight=False, markup=False)
        if finding.reading:
            out.print(f"    read as: {finding.reading}", highlight=False, markup=False)
        out.print(f"    {judgement.why}", highlight=False, markup=False)


def runs_as_measured(store: Store) -> list[findings.Measured]:
    """Results as findings take them: last attempts, where they were valid."""
    from quiver_lab.oddity import Latest  # noqa: PLC0415

    out_list = []
    for cell in Latest.by_cell(store.runs()):
        keys = cell.cell.as_text()
        keys.pop("procedure")
        sound = [r for r in cell.last() if r.valid]
        quantities = {q for r in sound for q in r.values}
        for q in sorted(quantities):
            if values := cell.values(q, sound):
                out_list.append(findings.Measured(keys, q, values))
    return out_list


@app.command()
def report(results: Results, to: Annotated[Path, typer.Option("--out", help="folder for the report")]) -> None:
    """Write the report: one page that needs no network, SVG figures, CSV and LaTeX tables."""
    from quiver_lab.report import build  # noqa: PLC0415  (slow to import)

    out.print(str(build(Store.open(results), to)), highlight=False, markup=False)


@app.command()
def index(
    results: Annotated[list[Path], typer.Argument(help="folders of campaigns' results")],
    to: Annotated[Path, typer.Option("--out", help="page to write, such as index.html")],
) -> None:
    """Write a page that leads to the reports of several campaigns."""
    from quiver_lab.report import index as pages  # noqa: PLC0415  (slow to import)

    out.print(str(pages.build([Store.open(folder) for folder in results], to)), highlight=False, markup=False)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="results A")],
    b: Annotated[Path, typer.Argument(help="results B; may be the same folder with --dut-a and --dut-b")],
    dut_a: Annotated[str | None, typer.Option(help="device of A")] = None,
    dut_b: Annotated[str | None, typer.Option(help="device of B")] = None,
) -> None:
    """Compare the same cells of two campaigns, or two devices: ratio of medians, Mann-Whitney test, effect size."""
    from quiver_lab.report import number, tables  # noqa: PLC0415  (slow to import)

    if (dut_a is None) != (dut_b is None):
        raise StoreError("give both --dut-a and --dut-b, or neither")
    store_a, store_b = Store.open(a), Store.open(b)
    for key, value in store_a.machine.items():
        if value != store_b.machine.get(key):
            err.print(f"warning: {key} differs: {value} and {store_b.machine.get(key)}", highlight=False, markup=False)
    for name in sorted({*store_a.campaign.procedures} & {*store_b.campaign.procedures}):
        if store_a.campaign.procedures[name] != store_b.campaign.procedures[name]:
            err.print(f"warning: procedure {name} differs", highlight=False, markup=False)
    found = tables.between_campaigns(tables.rows(store_a), tables.rows(store_b), dut_a=dut_a, dut_b=dut_b)
    if not found:
        raise StoreError("no cell has values on both sides")
    for v in found:
        c = v.comparison
        ratio = "" if c.ratio is None else f", {c.ratio:.3f} times"
        device = "" if dut_a else f"{v.cell.dut}, "
        out.print(
            f"{device}{tables.traffic(v.cell)}: {v.quantity} {number(c.median_a)} and {number(c.median_b)}{ratio}; "
            f"p {c.p_value:.2g}, effect {c.effect}: {v.words}",
            highlight=False, markup=False,
        )  # fmt: skip


@app.command()
def export(results: Results, parquet: Annotated[Path, typer.Option("--parquet", help="file to write")]) -> None:
    """Write one row a trial and direction as Parquet."""
    rows = Store.open(results).export_parquet(parquet)
    out.print(f"{rows} rows in {parquet}", highlight=False)


@app.command()
def archive(results: Results, file: Annotated[Path, typer.Option("--file", help="file to write (.tar.xz)")]) -> None:
    """Pack a campaign's results into one file; unpacked, everything works on it as before."""
    count = Store.open(results).archive(file)
    out.print(f"{count} files in {file}", highlight=False)


@app.command(name="import-trex")
def import_trex(
    file: Annotated[Path, typer.Argument(help="TRex stateless profile (a Python program, which is run)")],
    to: Annotated[Path, typer.Option("--out", help="profile to write (YAML)")],
    one_way: Annotated[bool, typer.Option("--one-way", help="streams of the first port only")] = False,
    tunable: Annotated[
        list[str] | None, typer.Option("--tunable", help="word for the profile; may be given several times")
    ] = None,
) -> None:
    """Write a TRex stateless profile as one of quiver-tester's."""
    words = tunable or []
    left = trex.load(file, 0, words)
    document, notes = trex.emit(file.stem, left, [] if one_way else trex.load(file, 1, words))
    to.write_text(trex.text(document, [f"Imported from {file.name}, a profile of TRex.", *notes]), encoding="utf-8")
    for note in notes:
        err.print(f"note: {note}", highlight=False, markup=False)
    out.print(f"{len(document['streams'])} streams in {to}", highlight=False)


@app.command(name="testbed")
def testbed_command(file: Annotated[Path, typer.Argument(help="description of a testbed of two hosts (YAML)")]) -> None:
    """Look over SSH whether the hosts of a testbed are as described. Changes nothing there."""
    from quiver_lab import remote  # noqa: PLC0415  (slow to import)

    bad = False
    for check in remote.checks(remote.load(file)):
        bad |= check.state == "bad"
        out.print(f"{check.state:5} {check.what}", highlight=False, markup=False)
        if check.remedy:
            out.print(f"      {check.remedy}", highlight=False, markup=False)
    if bad:
        raise typer.Exit(1)


@app.command(name="doctor")
def doctor_command() -> None:
    """Say what this host can measure, and what would make results better."""
    for check in doctor.checks():
        out.print(f"{check.state:5} {check.what}", highlight=False, markup=False)
        if check.remedy:
            out.print(f"      {check.remedy}", highlight=False, markup=False)


def _version(value: bool) -> None:
    if value:
        out.print(f"quiver-lab {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="print the version")] = False,
) -> None:
    """Take what stands before a command."""


def main() -> None:
    """Run the command line; expected errors are one line and status 1."""
    try:
        app(prog_name="quiver-lab", standalone_mode=True)
    except (campaign.CampaignError, StoreError, ValueError, OSError) as error:
        err.print(f"quiver-lab: {error}", highlight=False, markup=False)
        sys.exit(1)
    except RuntimeError as error:
        err.print(f"quiver-lab: {' '.join(str(error).split())}", highlight=False, markup=False)
        sys.exit(1)
