"""What `drydock trajectories show` knows about a rollout, as plain data: for programs, and for the page."""

from collections.abc import Callable, Iterator
from typing import Any

from tokenizers import Tokenizer

from drydock.proxy.record import TurnRecord
from drydock.report.token_text import token_texts
from drydock.rollout.history import Branch, branches
from drydock.rollout.trajectory import Trajectory

type TellTokens = Callable[[list[int]], list[str]]
"""Texts of token ids, one each."""


def teller(tokenizer: Tokenizer | None) -> TellTokens:
    """What tells the text of tokens: a tokenizer, or without one their ids."""
    if tokenizer is None:
        return lambda ids: [f"{token} " for token in ids]
    return lambda ids: token_texts(tokenizer, ids)


def branch_turns(trajectory: Trajectory) -> Iterator[tuple[Branch, list[int]]]:
    """Each branch with the places of those of its turns that no earlier branch has."""
    seen: set[int] = set()
    for branch in branches(trajectory.record):
        own = [place for place, turn in enumerate(branch.turns) if turn.index not in seen]
        seen.update(turn.index for turn in branch.turns)
        yield branch, own


def find_turn(trajectory: Trajectory, index: int) -> tuple[Branch, int] | None:
    """The branch that trains turn `index`, or else has it first, and the turn's place there."""
    held: list[tuple[Branch, int]] = []
    for branch, _ in branch_turns(trajectory):
        held += [(branch, place) for place, turn in enumerate(branch.turns) if turn.index == index]
    return next((one for one in held if one[0].trains(one[0].turns[one[1]])), held[0] if held else None)


def rollout_facts(trajectory: Trajectory) -> dict[str, Any]:
    """The rollout without its tokens: how it ended, its branches, its turns."""
    found = list(branch_turns(trajectory))
    return {
        **trajectory.model_dump(mode="json", exclude={"record", "turns"}),
        "branch_reasons": trajectory.record.branch_reasons,
        "context_full": trajectory.record.context_full,
        "late_calls": trajectory.record.late_calls,
        "sampler_error": trajectory.record.sampler_error,
        "tokens": sum(len(sample.token_ids) for sample in trajectory.record.samples),
        "trained_tokens": sum(sum(sample.loss_mask) for sample in trajectory.record.samples),
        "branches": [
            {"number": branch.number, "turns": [turn.index for turn in branch.turns], "own": len(own)}
            for branch, own in found
        ],
        "turns": [turn_facts(branch, place) for branch, own in found for place in own],
    }


def turn_facts(branch: Branch, place: int) -> dict[str, Any]:
    """One turn without its tokens. Log-probs are natural; `seconds` is how long sampling took."""
    turn = branch.turns[place]
    return {
        "index": turn.index,
        "parent": turn.parent,
        "branch": turn.branch,
        "reason": turn.reason,
        "finish_reason": turn.finish_reason,
        "prompt_tokens": turn.prompt_length,
        "new_prompt_tokens": len(branch.added_ids(place)),
        "sampled_tokens": len(turn.sampled_ids),
        "trained": branch.trains(turn),
        "policy_version": turn.policy_version,
        "started_at": turn.started_at,
        "seconds": turn.seconds,
        "logprob_mean": _mean(turn),
        "logprob_lowest": min(turn.logprobs, default=None),
        "given": turn.given,
        "reply": turn.reply,
    }


def token_facts(branch: Branch, place: int, tell: TellTokens) -> list[dict[str, Any]]:
    """The tokens that a turn added to its history: first the new ones of its prompt, then the sampled ones.

    place: index within the whole row. logprob: None where the token was not sampled here.
    """
    turn = branch.turns[place]
    added = branch.added_ids(place)
    mask = int(branch.trains(turn))
    rows = [(token, 0, None) for token in added]
    rows += [(token, mask, logprob) for token, logprob in zip(turn.sampled_ids, turn.logprobs, strict=True)]
    texts = tell([token for token, _, _ in rows])
    start = turn.prompt_length - len(added)
    return [
        {"place": start + offset, "id": token, "text": text, "mask": mask, "logprob": logprob}
        for offset, ((token, mask, logprob), text) in enumerate(zip(rows, texts, strict=True))
    ]


def _mean(turn: TurnRecord) -> float | None:
    return sum(turn.logprobs) / len(turn.logprobs) if turn.logprobs else None
