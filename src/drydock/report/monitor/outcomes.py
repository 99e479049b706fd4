"""How the rollouts of the last step ended, whose fault it was, and one thing that was said."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.report.monitor.rollout_heads import RolloutHead, rollout_heads
from drydock.report.monitor.step_rows import number

_PREFIX = "outcome/"
_GRADED = "graded"


@dataclass(frozen=True, slots=True)
class OutcomeCount:
    """blames: who has to act, with how many rollouts, most first. example: an error message, "" where there is none."""

    outcome: str
    count: int
    blames: tuple[tuple[str, int], ...] = ()
    example: str = ""


def outcomes_of(record: Mapping[str, Any], folders: Iterable[Path]) -> tuple[OutcomeCount, ...]:
    """Of a step's record, most frequent first. Blame and message are read from the files in `folders`, if needed.

    As in the record, only the rollouts of groups that the step waited for count.
    """
    counts = {
        key.removeprefix(_PREFIX): int(count)
        for key, value in record.items()
        if key.startswith(_PREFIX) and (count := number(value))
    }
    blames: dict[str, Counter[str]] = {name: Counter() for name in counts}
    examples: dict[str, str] = {}
    if counts.keys() - {_GRADED}:
        for head in _of_whole_groups(head for folder in folders for head in rollout_heads(folder)):
            if head.outcome in blames and head.blame:
                blames[head.outcome][head.blame] += 1
            if head.error:
                examples.setdefault(head.outcome, f"{head.task}: {head.error}")
    return tuple(
        OutcomeCount(name, count, tuple(blames[name].most_common()), examples.get(name, ""))
        for name, count in sorted(counts.items(), key=lambda item: -item[1])
    )


def _of_whole_groups(heads: Iterable[RolloutHead]) -> list[RolloutHead]:
    from drydock.rollout.cut_group import was_cut_off  # its package takes long to import

    groups: dict[str, list[RolloutHead]] = {}
    for head in heads:
        if not head.replaced:
            groups.setdefault(head.task, []).append(head)
    return [head for group in groups.values() if not was_cut_off(group) for head in group]
