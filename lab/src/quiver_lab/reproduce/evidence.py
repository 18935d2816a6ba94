"""A reproduction's results as findings take them: cells named as the paper names them, quantities as it has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from quiver_lab import findings, stats
from quiver_lab.campaign import Cell
from quiver_lab.energy import per_watt_hour
from quiver_lab.findings import Finding, Judgement, Measured, Predicate, Scalar, Verdict
from quiver_lab.oddity import Latest
from quiver_lab.preconditions import POLLS
from quiver_lab.published import Cell as Keys
from quiver_lab.records import RunRecord
from quiver_lab.reproduce import counters
from quiver_lab.reproduce.counters import Evidence
from quiver_lab.reproduce.design import CANDIDATE, CAPACITY, CONTROL, Design
from quiver_lab.store import Store
from quiver_lab.trial import Trial

PUBLISHED_TRIAL_S = 120.0
"""Of seed 000: for how long its energy counts."""
NOT_RUN = "not run yet"
LEAST_OF_A_DISPERSION = 5
"""Repeats: fewer are close together by chance."""
_SHARE = re.compile(r"at_([0-9.]+)_percent_(.+)")
_OVERHEAD = ("memif", "error-drop", "arp", "neighbor", "host-", "pg")


@dataclass(frozen=True, slots=True)
class Known:
    """One cell of the campaign: what was measured, or why nothing was."""

    cell: Cell
    keys: Keys
    values: dict[str, tuple[float, ...]]
    """Repeats by quantity; of each repeat its last attempt, where that was valid. Verdicts rest on these only."""
    why: str
    """Why there are no values: absent, failed, not run yet. Empty where something was measured."""
    notes: tuple[str, ...] = ()
    doubtful: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """The same of repeats that were not valid, where none was: they are shown, marked, and judge nothing."""
    left_out: int = 0
    """How many repeats were not valid."""
    polls: bool = False
    """Whether the device polled its ports in all of them."""

    @property
    def shown(self) -> dict[str, tuple[float, ...]]:
        """What tables show."""
        return self.values or self.doubtful


def known_cells(store: Store, design: Design) -> list[Known]:
    """Every cell of the campaign, in its order."""
    done = {latest.cell.slug: latest for latest in Latest.by_cell(store.runs())}
    why = {
        r.run.cell.slug: f"{r.why}" if r.status == "absent" else f"failed: {r.why}" for r in store.runs() if r.status != "done"
    }
    energy = _energy(store) if store.campaign.testbed.meter != "none" else {}
    out = []
    for cell in store.campaign.cells():
        keys = design.keys(cell, store.campaign) | ({"throttle": f"{cell.throttle:g}"} if cell.throttle != 1 else {})
        latest = done.get(cell.slug)
        if latest is None:
            out.append(Known(cell, keys, {}, why.get(cell.slug, NOT_RUN)))
            continue
        last = latest.last()
        sound = tuple(r for r in last if is_sound(r, keys))
        chosen = sound or last
        quantities = sorted({q for r in chosen for q in r.values})
        values = {q: v for q in quantities if (v := latest.values(q, chosen))}
        values |= energy.get(cell.slug, {})
        values |= _derived(values)
        notes = one_of_a_kind([n for r in chosen for n in r.notes])
        left_out = len(last) - len(sound)
        polls = all(r.device.get("rx_mode") == "polling" for r in chosen)
        if sound and left_out:
            notes = (*notes, f"{left_out} of {len(last)} repeats were not valid and are left out")
        out.append(Known(cell, keys, values if sound else {}, "", notes, {} if sound else values, left_out, polls))
    control = [k for k in out if k.keys["dut"] == CONTROL]
    if all(k.why for k in control) and any(k.why == NOT_RUN for k in control):
        # ``--only`` left the control for another call: until then there is none.
        return [k for k in out if k.keys["dut"] != CONTROL]
    return out


def of_control(known: list[Known]) -> list[Known]:
    """What findings are about with the positive control in the candidate's place; nothing where there was none."""
    out = [k for k in known if k.keys["dut"] != CANDIDATE]
    if all(k.keys["dut"] != CONTROL for k in out):
        return []
    return [replace(k, keys={**k.keys, "dut": CANDIDATE}) if k.keys["dut"] == CONTROL else k for k in out]


def one_of_a_kind(notes: list[str]) -> tuple[str, ...]:
    """Notes of several repeats, without those that differ from another in their numbers only."""
    kinds: dict[str, str] = {}
    for note in notes:
        kinds.setdefault(re.sub(r"[0-9.]+", "0", note), note)
    return tuple(kinds.values())


def is_sound(record: RunRecord, keys: Keys) -> bool:
    """Whether a run may bear a verdict: it was valid, or an overload in which the device's vectors were as good as full.

    On ports whose rings push back nothing is lost to a device that is busy; its vectors tell.
    """
    full = 0.9 * float(keys.get("vector_size", "inf"))
    return record.valid or ("offered_pps" in record.values and (record.values.get("vector_mean_packets") or 0.0) >= full)


def _derived(values: dict[str, tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
    """Quantities that follow from others."""
    out: dict[str, tuple[float, ...]] = {}
    if found := values.get("throughput_pps"):
        dispersion = stats.summary(found).dispersion_percent
        if dispersion is not None and len(found) >= LEAST_OF_A_DISPERSION:
            out["throughput_dispersion_percent"] = (dispersion,)
    nodes = [v for q, v in values.items() if q.startswith("node_") and not q.removeprefix("node_").startswith(_OVERHEAD)]
    if nodes and len({len(v) for v in nodes}) == 1:
        # Of the nodes that forward; input and output of the ports are the lab's choice.
        out["graph_clocks"] = tuple(sum(column) for column in zip(*nodes, strict=True))
    return out


def _energy(store: Store) -> dict[str, dict[str, tuple[float, ...]]]:
    """Energy of a trial of the paper's length at the power measured, and what a watt-hour delivers; one value a trial."""
    sums: dict[str, dict[str, list[float]]] = {}
    for t in store.trials():
        if t.energy is None or t.energy.joules <= 0:
            continue
        received = Trial.model_validate(t.trial).received
        packets = per_watt_hour(received, t.energy.joules)
        mine = sums.setdefault(t.run.cell.slug, {})
        mine.setdefault("energy_wh", []).append(t.energy.joules / t.energy.seconds * PUBLISHED_TRIAL_S / 3600)
        if packets is not None:
            mine.setdefault("packets_per_wh", []).append(packets)
            mine.setdefault("bytes_per_wh", []).append(packets * t.run.cell.frame_bytes)
    return {slug: {q: tuple(v) for q, v in values.items()} for slug, values in sums.items()}


def by_load(keys: Keys, quantity: str) -> tuple[Keys, str]:
    """A value at a share of R+ as a cell of its own."""
    match = _SHARE.fullmatch(quantity)
    if match is None:
        return keys, quantity
    return {**keys, "load": f"{float(match[1]) / 100:g}"}, match[2]


def measured(known: list[Known]) -> list[Measured]:
    """Everything that findings may be about, one value a quantity and cell."""
    out = []
    for k in known:
        if k.keys.get("load") == CAPACITY:
            continue
        for quantity, values in k.values.items():
            if quantity == "receive_rate_pps" and k.cell.link == "pg" and k.cell.pattern != "static":
                # A packet generator's rate holds the work of making frames, which the pattern changes; clocks of the graph do
                # not.
                continue
            keys, name = by_load(k.keys, quantity)
            # A dispersion describes the repeats; it is no sample of anything.
            out.append(Measured(keys, name, values, 1.0 if quantity == "throughput_dispersion_percent" else None))
        for own in {tuple(by_load(k.keys, q)[0].items()) for q in k.values}:
            out.append(Measured(dict(own), POLLS, (float(k.polls),), 1.0))
    return out


OTHER_PORTS = "each on its best ports"


def comparisons(finding: Finding, values: list[Measured]) -> list[tuple[str, list[Measured]]]:
    """The ways to compare the candidate with the other device of a finding: on ports that both have, and each on its best.

    The candidate's best ports are those that the other does not have. One way, without words, where there is no such choice.
    Only on the same ports can a finding be judged: the papers' devices had the same.
    """
    p = finding.predicate
    duts = {str(side.get("dut")) for side in (p.left, p.right)} if p else set()
    others = duts - {CANDIDATE, "None"}
    links: dict[str, dict[str, None]] = {}
    for m in values:
        links.setdefault(m.cell.get("dut", ""), {}).setdefault(m.cell.get("link", ""))
    theirs = links.get(next(iter(others)), {}) if len(others) == 1 and CANDIDATE in duts else {}
    best = [link for link in links.get(CANDIDATE, {}) if link not in theirs and link != "pg"]
    if len(theirs) != 1 or not best or len(best) == len(links[CANDIDATE]):
        return [("", values)]
    (same,) = theirs

    def of(m: Measured, wanted: list[str]) -> bool:
        return m.cell.get("dut") == CANDIDATE and m.cell.get("link") in wanted

    return [
        (f"same ports: {same}", [m for m in values if not of(m, best)]),
        (
            f"{OTHER_PORTS}: {', '.join(best)} beside {same}",
            [replace(m, cell={**m.cell, "link": same}) if of(m, best) else m for m in values if not of(m, [same])],
        ),
    ]


def instead_of(predicate: Predicate) -> str:
    """What stands in for what cannot be told, in words."""
    if "throttle" in predicate.where:
        return f"devices with {float(predicate.where['throttle']):.0%} of their core"
    return "clocks of the benches" if predicate.quantity == "ring_clocks_per_packet" else "clocks of the nodes that forward"


def judge(design: Design, known: list[Known], more: Evidence | None = None) -> Iterator[Judgement]:
    """Every finding of the paper, once for each way to compare; where cells that it speaks of are absent, the reason is there.

    ``more`` is what the repository's benches say of instructions: verdicts that rest on it tell so.
    """
    more = more or Evidence(lacking="no figures of the benches were given", perf_lacking="not looked for")
    counted = counters.counted(more)
    values = measured(known)
    own = {m.quantity for m in values}
    # What trials tell of the whole router comes before what benches tell of its nodes.
    drift = counters.drift(more)
    values += [
        Measured(c.keys, c.quantity, (c.value,), 1.0 if c.kind == "simulated" else drift)
        for c in counted
        if c.quantity not in own
    ]
    for finding in findings.load(design.name):
        for ports, chosen in comparisons(finding, values):
            verdict = _judge(finding, chosen, known, more)
            unjudged = not verdict.pairs or verdict.verdict is Verdict.PRECONDITION_NOT_MET
            if unjudged and finding.otherwise is not None:
                instead = _judge(finding.model_copy(update={"predicate": finding.otherwise}), chosen, known, more)
                if instead.pairs:
                    verdict = replace(
                        instead,
                        finding=finding,
                        why=f"by {instead_of(finding.otherwise)}: {instead.why} ({verdict.why})",
                    )
            if ports.startswith(OTHER_PORTS) and verdict.pairs:
                why = f"the ports are not the same; beside each other, for what that is worth: {verdict.why}"
                verdict = replace(verdict, verdict=Verdict.PRECONDITION_NOT_MET, why=why)
            yield replace(verdict, ports=ports)


def _spoken_of(known: list[Known], wanted: Mapping[str, Scalar]) -> list[Known]:
    """Cells that one side of a finding is about, whatever the load; throttled ones only where it asks for them."""
    words = {"throttle": "1"} | {k: str(v) for k, v in wanted.items() if k != "load"}
    return [k for k in known if all(({"throttle": "1"} | k.keys).get(key) == v for key, v in words.items())]


def _judge(finding: Finding, values: list[Measured], known: list[Known], more: Evidence) -> Judgement:
    verdict = findings.judge(finding, values, candidate=CANDIDATE)
    p = finding.predicate
    if p is None:
        return verdict
    if not any(p.quantity in k.values for k in known) and (lacks := counters.missing(more, p.quantity)):
        kinds = " and ".join(dict.fromkeys(c.kind for c in counters.counted(more) if c.quantity == p.quantity))
        told = bool(verdict.pairs)
        return replace(verdict, why=f"{verdict.why}; {kinds} values, not measured" if told else f"{verdict.why}: {lacks}")
    if verdict.pairs:
        # It rests on what was measured; what else it speaks of is told.
        gaps = [k.why for k in _spoken_of(known, {**p.where, **p.left}) if k.why]
        if gaps:
            words = "; ".join(f"{gaps.count(why)} {why}" for why in dict.fromkeys(gaps))
            verdict = replace(verdict, why=f"{verdict.why}; further cells without values: {words}")
        return verdict
    reasons = []
    for side in (p.left, p.right):
        found = _spoken_of(known, {**p.where, **side}) if side else []
        if found and not any(p.quantity in k.values for k in found):
            reasons += [k.why for k in found if k.why]
            spoilt = [k for k in found if k.doubtful]
            if spoilt:
                said = one_of_a_kind([n for k in spoilt for n in k.notes])
                reasons.append(f"of {len(spoilt)} cells no run was valid ({'; '.join(said) or 'no reason given'})")
            if p.quantity.endswith("_wh") and any(not k.why for k in found):
                reasons.append("no energy measured")
    why = "; ".join(dict.fromkeys(reasons))
    return replace(verdict, why=f"{verdict.why}: {why}") if why else verdict
