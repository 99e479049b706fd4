"""Drives a ledger by hand: what the sampler says is given as text or as ids."""

import itertools
from typing import Any

from drydock.chat.messages import Message, parse_message
from drydock.chat.parsers import HermesParser, ToolCallParser
from drydock.chat.template import ChatTemplate
from drydock.proxy.dialects.chat import assistant_message
from drydock.proxy.ledger import Ledger, Prompt, Thinking
from drydock.proxy.record import RolloutRecord, TurnRecord
from drydock.proxy.sampler import SampledTurn


class LedgerDriver:
    """A ledger with a counter for tool-call ids; `turns` are the records of what it was told.

    parser: reads what the sampler says. thinking: see `Ledger`.
    """

    def __init__(
        self, template: ChatTemplate, parser: ToolCallParser | None = None, *, thinking: Thinking = "keep"
    ) -> None:
        self.template = template
        self.parser = parser or HermesParser()
        self.ledger = Ledger(template, thinking=thinking)
        self.turns: list[TurnRecord] = []
        self._numbers = itertools.count(1)

    def extend(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None = None) -> Prompt:
        """Place a request."""
        return self.ledger.extend(read(messages), tools)

    def answer(
        self,
        prompt: Prompt,
        text: str,
        *,
        ids: list[int] | None = None,
        ended: bool = True,
        stop: int | None = None,
    ) -> dict[str, Any]:
        """Record `text` (as `ids`, if given) as the sampled turn; returns the assistant message for the agent.

        ended: with the stop token, which is the template's end of a turn or `stop`.
        """
        sampled = self.template.encode(text) if ids is None else ids
        sampled = (*sampled, self.template.turn_end_id if stop is None else stop) if ended else tuple(sampled)
        turn = SampledTurn(sampled, (-0.5,) * len(sampled), 0, "stop" if ended else "length", text)
        tools = prompt.segment.tools.tools
        reply = self.parser.parse(self.template.turn_text(sampled), self._new_id, tools)
        index = self.ledger.record(prompt, turn, reply)
        segment = prompt.segment
        self.turns.append(
            TurnRecord(
                index=index,
                parent=segment.parent.index if segment.parent else None,
                prompt_length=segment.prompt_length,
                prompt_sha256=segment.prompt_hash.hex,
                sampled_ids=list(sampled),
                logprobs=list(turn.logprobs),
                policy_version=0,
                finish_reason=turn.finish_reason,
                started_at=0.0,
                seconds=0.0,
                branch=segment.branch,
                reason=segment.reason.value if segment.reason else None,
            )
        )
        return assistant_message(reply)

    def _new_id(self) -> str:
        return self.parser.call_id(next(self._numbers), "driver")

    def record(self) -> RolloutRecord:
        """What the proxy would write down of it."""
        return RolloutRecord(
            rollout_id="r",
            turns=self.turns,
            samples=self.ledger.samples(),
            branch_reasons=dict(self.ledger.branch_reasons),
        )

    def turn(self, messages: list[dict[str, Any]], text: str, **how: Any) -> tuple[Prompt, dict[str, Any]]:
        """Place a request and answer it."""
        prompt = self.extend(messages)
        return prompt, self.answer(prompt, text, **how)


def read(messages: list[dict[str, Any]]) -> tuple[Message, ...]:
    """Messages as the proxy reads them."""
    return tuple(parse_message(message, place) for place, message in enumerate(messages))
