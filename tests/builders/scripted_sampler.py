"""A sampler that says what a script tells it to, as real token ids of a real template."""

import asyncio
from collections.abc import Callable, Sequence

from drydock.chat.template import ChatTemplate
from drydock.proxy.sampler import SampledTurn
from drydock.wire.rest import SamplingParams


class ScriptedSampler:
    """Encodes `reply(prompt ids, prompt text)`, adds the template's end-of-turn token, and cuts at `max_tokens`.

    The n-th sampled token of a turn has log-prob -(n + 1) / 8. `calls` keeps (prompt ids, params, routing key),
    `called` is set by the first.
    """

    def __init__(
        self,
        template: ChatTemplate,
        reply: Callable[[list[int], str], str],
        *,
        delay_s: float = 0.0,
        policy_version: int = 0,
    ) -> None:
        self.template = template
        self.reply = reply
        self.delay_s = delay_s
        self.policy_version = policy_version
        self.called = asyncio.Event()
        self.calls: list[tuple[list[int], SamplingParams, str]] = []

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        """One scripted turn."""
        prompt = list(prompt_ids)
        self.called.set()
        self.calls.append((prompt, params, routing_key))
        if self.delay_s:
            await asyncio.sleep(self.delay_s)
        text = self.reply(prompt, self.template.decode(prompt))
        ids = [*self.template.encode(text), self.template.turn_end_id]
        finish_reason = "stop" if len(ids) <= params.max_tokens else "length"
        ids = ids[: params.max_tokens]
        logprobs = tuple(-(place + 1) / 8 for place in range(len(ids)))
        return SampledTurn(tuple(ids), logprobs, self.policy_version, finish_reason, text)


def scripted(template: ChatTemplate, replies: Sequence[str]) -> ScriptedSampler:
    """A sampler that gives `replies` one after the other, then repeats the last."""
    remaining = list(replies)
    return ScriptedSampler(template, lambda _ids, _text: remaining.pop(0) if len(remaining) > 1 else remaining[0])
