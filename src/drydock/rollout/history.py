"""A rollout's turns as histories: which turns follow one another, with their messages and their tokens.

A branch is the way from the first turn to one that nothing follows, so turns that several branches share are in each of
them. Everything is read from the record alone; no tokenizer and no template is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from drydock.errors import UserError
from drydock.proxy.record import LedgerSample, RolloutRecord, TurnRecord


@dataclass(frozen=True, slots=True)
class Branch:
    """One history.

    turns: from the first to the last. sample: the training row with exactly these tokens, None where there is none.
    """

    turns: tuple[TurnRecord, ...]
    sample: LedgerSample | None

    @property
    def number(self) -> int:
        """The branch's number: that of its last turn."""
        return self.turns[-1].branch

    def trains(self, turn: TurnRecord) -> bool:
        """Whether the turn's tokens have loss mask 1 in this branch's row (each turn has it in one row only)."""
        return self.sample is not None and turn.index in self.sample.turn_indices

    def added_ids(self, place: int) -> list[int]:
        """The prompt tokens of `turns[place]` after the turn before it; empty where no row has them."""
        if self.sample is None:
            return []
        turn = self.turns[place]
        return self.sample.token_ids[new_from(turn, self.turns[place - 1] if place else None) : turn.prompt_length]

    def prompt_ids(self, place: int) -> list[int] | None:
        """All prompt tokens of `turns[place]`, None where no row has them."""
        return self.sample.token_ids[: self.turns[place].prompt_length] if self.sample else None


def new_from(turn: TurnRecord, parent: TurnRecord | None) -> int:
    """The first place in the prompt that the parent's turn does not reach."""
    return parent.prompt_length + len(parent.sampled_ids) if parent is not None else 0


def branches(record: RolloutRecord) -> list[Branch]:
    """Every history of the rollout, in the order in which their last turns were sampled."""
    followed = {turn.parent for turn in record.turns}
    turns = {turn.index: turn for turn in record.turns}
    found = []
    for leaf in record.turns:
        if leaf.index in followed:
            continue
        path = [leaf]
        while (parent := path[-1].parent) is not None:
            path.append(turns[parent])
        found.append(Branch(tuple(reversed(path)), _sample_of(leaf, record.samples)))
    return found


def messages_of(turns: Sequence[TurnRecord]) -> list[dict[str, Any]]:
    """The conversation of a history in the wire's form: what the harness added and what the policy said, turn by turn.

    Replies are as the agent got them, not as it sent them back. Raises UserError for a record without messages.
    """
    if not all(turn.reply for turn in turns):
        raise UserError("the record holds token ids only, no messages; it cannot be read as a conversation")
    return [message for turn in turns for message in (*turn.given, turn.reply)]


def _sample_of(leaf: TurnRecord, samples: Sequence[LedgerSample]) -> LedgerSample | None:
    """The row that ends with `leaf`, whose tokens no other row has."""
    return next((sample for sample in samples if sample.turn_indices[-1:] == [leaf.index]), None)
