"""One node of the token ledger's tree: what the harness added, and the turn that was sampled after it."""

from array import array
from dataclasses import dataclass, field
from typing import Self

from drydock.chat.messages import Message
from drydock.proxy.branching import BranchReason
from drydock.proxy.matching import Said
from drydock.proxy.sampler import SampledTurn
from drydock.proxy.token_hash import TokenHash
from drydock.proxy.tool_set import ToolSet


@dataclass(eq=False, slots=True)
class Segment:
    """Messages of the harness with their tokens, and the turn sampled after them (None while it is being sampled).

    given: messages after the parent's turn, the whole history where there is no parent.
    added_ids: prompt tokens after the parent's last token. prompt_length, prompt_hash: of the whole path up to the
    sampled turn. branch: number of the branch; reason: why it left the recorded history, if this segment did.
    index: place of the turn in the order of recording, -1 before that. said, sampled_ids, path_hash: of the turn.
    """

    parent: Self | None
    tools: ToolSet
    given: tuple[Message, ...]
    added_ids: "array[int]"
    prompt_length: int
    prompt_hash: TokenHash
    branch: int
    reason: BranchReason | None
    children: list[Self] = field(default_factory=list)
    turn: SampledTurn | None = None
    index: int = -1
    said: Said | None = None
    sampled_ids: "array[int]" = field(default_factory=lambda: array("I"))
    path_hash: TokenHash | None = None

    @property
    def path(self) -> list[Self]:
        """Segments from the first to this one."""
        segments: list[Self] = []
        segment: Self | None = self
        while segment is not None:
            segments.append(segment)
            segment = segment.parent
        return segments[::-1]

    @property
    def path_length(self) -> int:
        """Number of tokens from the first to the last sampled one."""
        return self.prompt_length + len(self.sampled_ids)

    def path_ids(self) -> "array[int]":
        """All tokens from the first to the last sampled one."""
        ids = array("I")
        for segment in self.path:
            ids += segment.added_ids
            ids += segment.sampled_ids
        return ids
