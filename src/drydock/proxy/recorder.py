"""Keeps a rollout's record while it runs, and writes each turn to the turn log before its reply leaves."""

from dataclasses import dataclass
from typing import Any

from drydock.chat.messages import Message
from drydock.chat.parsers.base import ParsedReply
from drydock.proxy.dialects.chat import assistant_message
from drydock.proxy.ledger import Ledger, Prompt
from drydock.proxy.record import LoggedTurn, RolloutRecord, TurnRecord
from drydock.proxy.sampler import SampledTurn
from drydock.proxy.tool_set import ToolSet
from drydock.proxy.turn_log import TurnLog


@dataclass(frozen=True, slots=True)
class Timing:
    """When a call came (Unix time), how long it waited for a place at the sampler and how long it sampled (seconds)."""

    started_at: float
    waited_s: float
    seconds: float


class Recorder:
    """Owns the record and the turn log of one rollout. record: complete once `finish` was called."""

    def __init__(self, rollout_id: str, turn_log: TurnLog) -> None:
        self.record = RolloutRecord(rollout_id=rollout_id)
        self._turn_log = turn_log
        self._tool_places: dict[ToolSet, int] = {}
        self._conversation: tuple[tuple[Message, ...], dict[str, Any]] | None = None

    def write(self, prompt: Prompt, turn: SampledTurn, reply: ParsedReply, timing: Timing) -> None:
        """Add a turn that is in the ledger; raises OSError when the log cannot be written."""
        segment = prompt.segment
        message = assistant_message(reply)
        # not validated: everything here is this package's own, and a turn has thousands of numbers
        record = TurnRecord.model_construct(
            index=segment.index,
            parent=segment.parent.index if segment.parent else None,
            prompt_length=segment.prompt_length,
            prompt_sha256=segment.prompt_hash.hex,
            sampled_ids=list(turn.sampled_ids),
            logprobs=list(turn.logprobs),
            policy_version=turn.policy_version,
            finish_reason=turn.finish_reason,
            started_at=timing.started_at,
            waited_s=timing.waited_s,
            seconds=timing.seconds,
            branch=segment.branch,
            reason=segment.reason.value if segment.reason else None,
            given=[given.wire_form() for given in segment.given],
            reply=message,
            tools=self._tool_place(segment.tools),
        )
        self.record.turns.append(record)
        self._conversation = (prompt.messages, message)
        if self._turn_log.enabled:
            self._turn_log.append(
                LoggedTurn.model_construct(
                    **record.__dict__, rollout_id=self.record.rollout_id, added_ids=segment.added_ids.tolist()
                )
            )

    def finish(self, ledger: Ledger) -> None:
        """Complete the record with what is known at the end."""
        self._turn_log.close()
        self.record.samples = ledger.samples()
        self.record.branch_reasons = dict(ledger.branch_reasons)
        if self._conversation is not None:
            messages, reply = self._conversation
            self.record.messages = [*(message.wire_form() for message in messages), reply]

    def _tool_place(self, tools: ToolSet) -> int | None:
        """Where the tools are in the record, which they are added to when they are new."""
        if not tools.tools:
            return None
        place = self._tool_places.get(tools)
        if place is None:
            place = self._tool_places[tools] = len(self.record.tool_sets)
            self.record.tool_sets.append(tools.tools)
        return place
