"""What a rollout's calls leave behind: turns as they were sampled, and training samples cut from them.

Alignment is own-token throughout: entry i of `loss_mask` and `logprobs` belongs to `token_ids[i]`. Everything is plain
JSON, and the audit recomputes from it alone that no trained token was re-tokenized.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

RECORD = ConfigDict(extra="forbid")


class TurnRecord(BaseModel):
    """One sampled turn.

    index: order in which the rollout's turns were recorded, from 0.
    parent: index of the turn whose prompt and sampled ids this turn's prompt begins with; None when it has none.
    prompt_length, prompt_sha256: number of prompt tokens and their hash (`drydock.proxy.token_hash`).
    sampled_ids, logprobs: what the sampler emitted, stop token included; natural log, one each.
    started_at: Unix time in seconds; waited_s: how long the call waited for a place at the sampler; seconds: how long
    sampling took.
    branch: number of the branch, 0 for the first history; an extension keeps its parent's number.
    reason: why the request left the recorded history (`drydock.proxy.branching`), None where it extends it.
    given: the messages, in the wire's form, that the harness added after the parent's turn; the whole history where
    there is no parent. reply: the assistant message that the agent got. tools: place in the record's `tool_sets`.
    """

    model_config = RECORD

    index: int
    parent: int | None
    prompt_length: int
    prompt_sha256: str
    sampled_ids: list[int]
    logprobs: list[float]
    policy_version: int | None
    finish_reason: str
    started_at: float
    waited_s: float = 0.0
    seconds: float
    branch: int
    reason: str | None = None
    given: list[dict[str, Any]] = Field(default_factory=list)
    reply: dict[str, Any] = Field(default_factory=dict)
    tools: int | None = None


class LoggedTurn(TurnRecord):
    """A line of a rollout's turn log: with `added_ids`, the prompt's tokens after the parent's, it can be replayed."""

    rollout_id: str
    added_ids: list[int]


class LedgerSample(BaseModel):
    """One training row: all tokens of one branch, from the first prompt to its last sampled turn.

    loss_mask: 1 exactly on ids that were sampled here and that no earlier sample of the rollout has with mask 1.
    logprobs: the sampler's, 0.0 where the mask is 0.
    turn_indices: the turns whose tokens have mask 1, in order.
    """

    model_config = RECORD

    token_ids: list[int]
    loss_mask: list[int]
    logprobs: list[float]
    turn_indices: list[int]


class EndpointUse(BaseModel):
    """The endpoint of somebody else that answered a rollout's calls. It gives no token ids, so the rollout's turns have
    neither ids nor log-probs nor prompt hashes, and there are no samples.

    prompt_tokens, completion_tokens: of each turn, as the endpoint counted them; None where it did not say.
    """

    model_config = RECORD

    url: str
    model: str
    prompt_tokens: list[int | None] = Field(default_factory=list)
    completion_tokens: list[int | None] = Field(default_factory=list)


class RolloutRecord(BaseModel):
    """Everything the proxy knows about one rollout.

    branch_reasons: how often a request did not extend what was recorded, by reason (`drydock.proxy.branching`).
    overridden: how often the agent sent a sampling parameter that the run decides instead, by name.
    context_full: a prompt left no room for a token. late_calls: calls with the rollout's key after it was closed.
    sampler_error: why sampling failed, if it did. messages: the last served conversation with its reply.
    tool_sets: the tool definitions that requests came with, each distinct list once.
    endpoint: who answered, where that was not a sampler of token ids; None where it was.
    """

    model_config = RECORD

    rollout_id: str
    samples: list[LedgerSample] = Field(default_factory=list)
    turns: list[TurnRecord] = Field(default_factory=list)
    branch_reasons: dict[str, int] = Field(default_factory=dict)
    overridden: dict[str, int] = Field(default_factory=dict)
    context_full: bool = False
    late_calls: int = 0
    sampler_error: str | None = None
    messages: list[dict[str, Any]] = Field(default_factory=list)
    tool_sets: list[list[dict[str, Any]]] = Field(default_factory=list)
    endpoint: EndpointUse | None = None

    @property
    def sampling_s(self) -> float:
        """Seconds that all turns took, their waits for a place included."""
        return round(sum(turn.waited_s + turn.seconds for turn in self.turns), 3)

    @property
    def sampled_tokens(self) -> int | None:
        """Tokens of all turns, stop tokens included; None where an endpoint left some uncounted."""
        if self.endpoint is None:
            return sum(len(turn.sampled_ids) for turn in self.turns)
        counted = [tokens for tokens in self.endpoint.completion_tokens if tokens is not None]
        return sum(counted) if len(counted) == len(self.turns) else None
