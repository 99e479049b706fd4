"""A policy that says what a test tells it to, in its family's words and in tokens that no tokenizer would choose."""

import asyncio
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from builders.chat_families import Family

from drydock.chat.template import ChatTemplate
from drydock.proxy.sampler import SampledTurn
from drydock.wire.rest import SamplingParams

_CALLS_ALONE = ("llama3.1", "mistral", "gpt-oss")
"""Families whose templates write no text beside a call."""


@dataclass(frozen=True)
class Answer:
    """What a turn says, before it is fitted to a family.

    stop: which of the family's stop tokens is sampled. cut: how many tokens at the end the length limit takes (with
    the stop token). odd: whether each character is a token of its own, so that tokenizing anew would show.
    """

    content: str = "So."
    calls: tuple[dict[str, Any], ...] = ()
    reasoning: str = ""
    stop: int = 0
    cut: int = 0
    odd: bool = True

    def ids(self, family: Family, template: ChatTemplate) -> list[int]:
        """The sampled ids; `cut` leaves at least one."""
        calls = [("terminal", arguments) for arguments in self.calls[: family.calls]]
        content = "" if calls and family.name in _CALLS_ALONE else self.content
        text = family.reply_text(content, calls, self.reasoning if family.thinks else "")
        ids: list[int] = []
        marks = re.compile("|".join(re.escape(mark) for mark in (*family.special, *family.added)))
        place = 0
        for mark in [*marks.finditer(text), None]:
            piece = text[place : mark.start() if mark else len(text)]
            ids += [token for part in (piece if self.odd else [piece]) for token in template.encode(part)]
            if mark:
                ids += template.encode(mark[0])
                place = mark.end()
        if self.cut:
            return ids[: -self.cut] or ids[:1] or [template.encode("a")[0]]
        usual = family.call_stop if calls else family.stop
        stop = usual if self.stop == 0 else family.ends[self.stop % len(family.ends)]
        return [*ids, template.encode(stop)[0]]


class QueuedSampler:
    """Gives `queue`'s turns in order; `calls` keeps the prompts and what was answered. No two log-probs are equal."""

    def __init__(self) -> None:
        self.queue: deque[tuple[list[int], bool]] = deque()
        self.calls: list[tuple[list[int], SampledTurn]] = []
        self._tokens = 0

    async def sample(self, prompt_ids: Sequence[int], params: SamplingParams, *, routing_key: str) -> SampledTurn:
        """One turn, after the event loop has gone round a few times."""
        ids, ended = self.queue.popleft()
        logprobs = tuple(-1.0 - (self._tokens + place) for place in range(len(ids)))
        self._tokens += len(ids)
        turn = SampledTurn(tuple(ids), logprobs, 0, "stop" if ended else "length", "")
        self.calls.append((list(prompt_ids), turn))
        for _ in range(3):
            await asyncio.sleep(0)
        return turn
