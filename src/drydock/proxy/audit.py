"""Proof, from a record alone, that every trained token is one that was sampled under the very prompt before it.

The audit shares no code path with the ledger: it takes the samples' masks and log-probs as a claim and the turns'
hashes, ids and log-probs as the evidence.
"""

from collections import Counter
from collections.abc import Iterator
from operator import ne

from pydantic import BaseModel

from drydock.proxy.record import LedgerSample, RolloutRecord, TurnRecord
from drydock.proxy.token_hash import TokenHash


class TokenAudit(BaseModel):
    """Counts of mask-1 tokens, and of branches.

    trained_tokens: all of them. retokenized_tokens: in spans that stand under a recorded prompt but are not the ids
    sampled there, or that are a recorded turn's ids under another prompt (ids repeated in several samples count as
    this from the second time on). unrecorded_tokens: in spans of which no turn knows anything. wrong_logprobs: those
    with another log-prob than was recorded. unexplained_branches: turns that go on from where another turn does, and
    have no reason.
    """

    trained_tokens: int = 0
    retokenized_tokens: int = 0
    unrecorded_tokens: int = 0
    wrong_logprobs: int = 0
    unexplained_branches: int = 0

    @property
    def clean(self) -> bool:
        """Whether every trained token and every branch is accounted for."""
        return not (
            self.retokenized_tokens or self.unrecorded_tokens or self.wrong_logprobs or self.unexplained_branches
        )

    @property
    def faults(self) -> str:
        """The counts that must be 0, for a line that begins with the number of trained tokens."""
        return (
            f"{self.retokenized_tokens} of them re-tokenized, "
            f"{self.unrecorded_tokens} of them not in the sampler's record, "
            f"{self.wrong_logprobs} of them with another log-prob; "
            f"{self.unexplained_branches} branches without a reason"
        )

    def __add__(self, other: "TokenAudit") -> "TokenAudit":
        return TokenAudit(
            trained_tokens=self.trained_tokens + other.trained_tokens,
            retokenized_tokens=self.retokenized_tokens + other.retokenized_tokens,
            unrecorded_tokens=self.unrecorded_tokens + other.unrecorded_tokens,
            wrong_logprobs=self.wrong_logprobs + other.wrong_logprobs,
            unexplained_branches=self.unexplained_branches + other.unexplained_branches,
        )


def audit(record: RolloutRecord) -> TokenAudit:
    """Check every mask-1 span of every sample against the recorded turns."""
    by_prompt: dict[tuple[int, str], list[TurnRecord]] = {}
    for turn in record.turns:
        by_prompt.setdefault((turn.prompt_length, turn.prompt_sha256), []).append(turn)
    sampled = {tuple(turn.sampled_ids) for turn in record.turns}
    trained: set[int] = set()
    without_reason = Counter(turn.parent for turn in record.turns if turn.reason is None)
    total = TokenAudit(unexplained_branches=sum(count - 1 for count in without_reason.values()))
    for sample in record.samples:
        for start, end, prompt_hash in _spans(sample):
            ids = sample.token_ids[start:end]
            total.trained_tokens += len(ids)
            turns = by_prompt.get((start, prompt_hash), [])
            match = next((turn for turn in turns if turn.sampled_ids == ids and turn.index not in trained), None)
            if match is not None:
                trained.add(match.index)
                claimed = sample.logprobs[start:end]
                total.wrong_logprobs += sum(map(ne, claimed, match.logprobs)) + len(ids) - len(claimed)
            elif turns or tuple(ids) in sampled:
                total.retokenized_tokens += len(ids)
            else:
                total.unrecorded_tokens += len(ids)
    return total


def _spans(sample: LedgerSample) -> Iterator[tuple[int, int, str]]:
    """Start, end and hash of all tokens before the start, for each run of mask-1 tokens."""
    mask = sample.loss_mask
    prefix, hashed, place = TokenHash(), 0, 0
    while place < len(mask):
        if not mask[place]:
            place += 1
            continue
        end = place
        while end < len(mask) and mask[end]:
            end += 1
        prefix = prefix.extended(sample.token_ids[hashed:place])
        yield place, end, prefix.hex
        hashed, place = place, end
