"""What a reviewer would ask of a reproduction, answered from its results. Pure but for reading the store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from quiver_lab.records import RunRecord
from quiver_lab.report import tables
from quiver_lab.reproduce.control import Told
from quiver_lab.reproduce.counters import Counted
from quiver_lab.reproduce.coverage import Covered
from quiver_lab.reproduce.design import candidate_of
from quiver_lab.reproduce.evidence import Known
from quiver_lab.store import Store


@dataclass(frozen=True, slots=True)
class Asked:
    """A question and its answer."""

    question: str
    answer: tuple[str, ...]
    """Sentences."""


@dataclass(frozen=True, slots=True)
class Results:
    """What the answers rest on."""

    known: Sequence[Known]
    told: Sequence[Told]
    covered: Sequence[Covered]
    counted: Sequence[Counted]
    modelled: int
    """Modelled values."""


def answered(store: Store, results: Results) -> list[Asked]:
    """All of them."""
    records = [r for r in store.runs() if r.status == "done"]
    return [
        Asked("Was the tester the limit?", _limits(results.known)),
        Asked("Was the machine quiet?", _quiet(store)),
        Asked("Do the repeats bear the verdicts?", _repeats(store, results.known)),
        Asked("Had all devices the same conditions?", _conditions(store, records)),
        Asked("Does what is said of the candidate hold of the paper's device as well?", _control(store, results.told)),
        Asked("What was not measured?", _not_measured(results)),
        Asked("What of the paper is missing, and what would it take?", _missing(results.covered)),
    ]


def _cells(n: int) -> str:
    return f"{n} cell{'' if n == 1 else 's'}"


def _limits(known: Sequence[Known]) -> tuple[str, ...]:
    measured = [k for k in known if not k.why]
    by_link: dict[str, list[Known]] = {}
    for k in measured:
        by_link.setdefault(k.cell.link, []).append(k)
    said = []
    for link, members in by_link.items():
        valid = sum(bool(k.values) for k in members)
        said.append(f"On {link} {valid} of {_cells(len(members))} have valid runs.")
        reasons = Counter(note for k in members if k.doubtful for note in dict.fromkeys(_without_numbers(n) for n in k.notes))
        if reasons:
            words = "; ".join(f"{why} ({n})" for why, n in reasons.most_common(3))
            said.append(f"Of the others, most often: {words}.")
    said.append("Runs that are not valid are shown, marked, and judge nothing.")
    if "pg" in by_link:
        said.append("With a packet generator (pg) there is no tester: what it cannot send is the device's limit.")
    return tuple(said)


def _without_numbers(note: str) -> str:
    """A note as far as it is alike in all cells."""
    return note.partition(" (")[0]


def _quiet(store: Store) -> tuple[str, ...]:
    count, every, speeds = tables.disturbed(store)
    again = store.campaign.noise.repeat_at_most
    said = f"{count} of {every} trials were disturbed. They were made again, at most {again} times, or are not valid."
    return (said, *(f"{s}." for s in speeds))


def _repeats(store: Store, known: Sequence[Known]) -> tuple[str, ...]:
    few = [k for k in known if k.values and k.left_out]
    order = "drawn anew for each repeat" if store.campaign.order == "random" else "that of the file"
    said = [
        f"Each cell has {store.campaign.repeats} repeats: the first of all cells, then the second, and so on.",
        f"The order within a repeat is {order}.",
        "A ratio has an interval from three repeats a side on, a median from five on; verdicts rest on intervals of 90 %.",
    ]
    if few:
        said.append(f"{_cells(len(few))} lack repeats that were not valid: their intervals are wider, or there is none.")
    return tuple(said)


def _conditions(store: Store, records: Iterable[RunRecord]) -> tuple[str, ...]:
    """Cores, driver and rx-mode of each device and link, as the runs say."""
    facts: dict[str, Counter[str]] = {}
    for r in records:
        cores = ", ".join(map(str, r.device.get("cores", ())))
        words = (f"core {cores}" if cores else "", str(r.device.get("driver", "")), str(r.device.get("rx_mode", "")))
        told = ", ".join(w for w in words if w)
        facts.setdefault(f"{r.run.cell.dut} on {r.run.cell.link}", Counter())[told] += 1
    said = ["All devices were measured in one campaign, in turns, with the same tester and profile."]
    for who, seen in facts.items():
        said.append(f"{who}: {'; '.join(told or 'nothing is told' for told, _ in seen.most_common(3))}.")
    if len({link.rpartition(" ")[2] for link in facts}) > 1:
        said.append("Devices are judged against each other on the same ports only.")
    return tuple(said)


def _control(store: Store, told: Sequence[Told]) -> tuple[str, ...]:
    name, candidate = store.campaign.control, candidate_of(store.campaign)
    if not name:
        return (
            f"That was not looked at: {candidate} alone took the place of the paper's device.",
            "With --control fdio-vpp both take it.",
        )
    both = [t for t in told if t.control is not None]
    kinds = Counter(t.says(candidate, name) for t in both)
    said = [f"{name} was measured beside {candidate}; {len(both)} verdicts stand beside each other."]
    said += [f"{words}: {n}." for words, n in kinds.most_common() if words]
    if silent := kinds[""]:
        said.append(f"Of {silent} the two verdicts tell of nobody: one of them at least is open.")
    return tuple(said)


def _not_measured(results: Results) -> tuple[str, ...]:
    kinds = Counter(c.kind for c in results.counted)
    said = [f"{n} values are {kind}, of the repository's benches." for kind, n in kinds.items()]
    if results.modelled:
        said.append(f"{results.modelled} values are modelled.")
    return (*said, "They are marked so wherever they stand.") if said else ("Nothing: every value is of a trial.",)


def _missing(covered: Sequence[Covered]) -> tuple[str, ...]:
    places = sum(c.places for c in covered)
    if not places:
        return ("The paper prints no table that could be laid beside.",)
    valid, doubtful, modelled = (sum(getattr(c, key) for c in covered) for key in ("valid", "doubtful", "modelled"))
    needs: Counter[str] = Counter()
    for c in covered:
        needs.update(dict(c.lacks))
    said = [
        f"Of {places} places in its tables and figures {valid} have valid values, {doubtful} values that are not valid, "
        f"{modelled} modelled ones."
    ]
    if needs:
        said.append("The others take " + "; ".join(f"{why} ({n})" for why, n in needs.most_common(8)) + ".")
    return tuple(said)
