"""A rollout in a real session, checked after every step against `HistoryModel` and at its end as a whole."""

import asyncio
import json
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from builders.chat_families import Family
from builders.histories import Answer, Conversation, Entry, Expected, HistoryModel, QueuedSampler
from builders.proxy_calls import TOOLS
from hypothesis.stateful import RuleBasedStateMachine, invariant

from drydock.chat.reply_reader import ReplyReader
from drydock.chat.template import ChatTemplate
from drydock.proxy.audit import audit
from drydock.proxy.session import RolloutSession
from drydock.proxy.settings import ProxySettings
from drydock.proxy.turn_log import TurnLog

CONTEXT_TOKENS = 8000
_OTHER = [*TOOLS, {"type": "function", "function": {"name": "finish", "parameters": {"type": "object"}}}]


@dataclass(frozen=True)
class Loaded:
    """A family with what is loaded once."""

    family: Family
    template: ChatTemplate
    reader: ReplyReader

    @property
    def tool_sets(self) -> list[Any]:
        """What an agent of this family may offer."""
        return [TOOLS, _OTHER, None] if self.family.calls else [None]


class CheckedRollout(RuleBasedStateMachine):
    """One rollout: several conversations. Subclasses have the rules, each of which asks for at least one turn."""

    def __init__(self, loaded: Loaded, tally: dict[str, int] | None = None) -> None:
        super().__init__()
        self.loaded = loaded
        self.tally = tally
        self.loop = asyncio.new_event_loop()
        self.conversations: list[Conversation] = []
        self.requests: list[Conversation] = []

    def begin(self, thinking: Any) -> None:
        """Open the session and the model. thinking: the ledger's setting."""
        loaded = self.loaded
        self.sampler = QueuedSampler()
        strips = thinking == "template" and loaded.template.strips_reasoning
        self.model = HistoryModel(loaded.family, loaded.template, loaded.tool_sets, strips=strips)
        self.session = RolloutSession(
            "rollout",
            base_url="",
            api_key="",
            template=loaded.template,
            parser=loaded.reader,
            sampler=self.sampler,
            settings=ProxySettings(context_tokens=CONTEXT_TOKENS, max_new_tokens=2000, thinking=thinking),
            turn_log=TurnLog(None),
            on_close=lambda _: None,
        )

    # what has to hold

    def ask(self, conversation: Conversation, answer: Answer | None, *, gives_up: bool = False) -> None:
        """One request. answer: what the policy says if it is asked; None where it must not be."""
        self.ask_all([conversation], [answer], gives_up=gives_up)

    def ask_all(
        self, conversations: list[Conversation], answers: Sequence[Answer | None], *, gives_up: bool = False
    ) -> None:
        """Requests at the same time."""
        family, template = self.loaded.family, self.loaded.template
        places: list[Expected] = []
        for conversation, answer in zip(conversations, answers, strict=False):
            place = self.model.place(conversation)
            places.append(place)
            if place.node is not None and not place.repeat:
                assert answer is not None, "an earlier request is not found again"
                self.sampler.queue.append((answer.ids(family, template), answer.cut == 0))
        before = len(self.sampler.calls)
        replies = self.run(*conversations, gives_up=gives_up)
        new = [place.node for place in places if place.node is not None and not place.repeat]
        assert len(self.sampler.calls) - before == len(new)
        bodies = {id(place.node): reply.body for place, reply in zip(places, replies, strict=True)}
        for node, (prompt, turn) in zip(new, self.sampler.calls[before:], strict=True):
            assert prompt == node.prompt
            message = json.loads(bodies[id(node)])["choices"][0]["message"]
            self.model.record(node, message, list(turn.sampled_ids), bodies[id(node)])
        for conversation, place, reply in zip(conversations, places, replies, strict=True):
            if place.node is None:
                assert reply.status == 400
                assert json.loads(reply.body)["error"]["code"] == "chat_template"
                continue
            assert reply.status == 200
            assert reply.body == place.node.body
            self.requests.append(conversation)
            answered = Entry({key: value for key, value in place.node.reply.items() if key != "refusal"})
            entries = (*conversation.entries, Entry(answered.message, place.node.index))
            self.conversations.append(Conversation(entries, conversation.tools))
        if self.tally is not None:
            self.tally["requests"] += len(replies)
            self.tally["refused"] += sum(place.node is None for place in places)
            self.tally["repeats"] += sum(place.repeat for place in places)

    @invariant()
    def the_record_says_where_turns_belong(self) -> None:
        if not hasattr(self, "session"):
            return
        record = self.session.record
        assert record.sampler_error is None
        assert len(record.turns) == len(self.sampler.calls) == len(self.model.turns)
        for turn, node, (prompt, sampled) in zip(record.turns, self.model.turns, self.sampler.calls, strict=True):
            assert turn.parent == (node.parent.index if node.parent else None)
            assert (turn.prompt_length, turn.sampled_ids) == (len(prompt), list(sampled.sampled_ids))
            assert (turn.reason is not None) == node.branches
            assert node.why in (None, turn.reason)
            if turn.reason is None and node.parent is not None:
                assert turn.branch == record.turns[node.parent.index].branch

    def teardown(self) -> None:
        try:
            if hasattr(self, "session"):
                self.check_samples()
        finally:
            self.loop.close()

    def check_samples(self) -> None:
        """Every sampled token has mask 1 once, after the tokens that it was sampled after; no other has it."""
        record = self.loop.run_until_complete(self.session.close())
        trained: list[int] = []
        for sample in record.samples:
            ones = 0
            for index in sample.turn_indices:
                prompt, turn = self.sampler.calls[index]
                start, end = len(prompt), len(prompt) + len(turn.sampled_ids)
                assert sample.token_ids[:end] == [*prompt, *turn.sampled_ids]
                assert sample.loss_mask[start:end] == [1] * (end - start)
                assert sample.logprobs[start:end] == list(turn.logprobs)
                ones += end - start
            assert sum(sample.loss_mask) == ones
            assert sum(one != 0 for one in sample.logprobs) == ones
            assert len(sample.token_ids) == len(sample.loss_mask) == len(sample.logprobs)
            trained += sample.turn_indices
        assert sorted(trained) == list(range(len(self.sampler.calls)))
        result = audit(record)
        assert result.clean
        assert result.trained_tokens == sum(len(turn.sampled_ids) for _, turn in self.sampler.calls)
        assert sum(record.branch_reasons.values()) == sum(node.branches for node in self.model.turns)
        for turn, (prompt, _) in zip(record.turns, self.sampler.calls, strict=True):
            assert turn.prompt_sha256 == sha256(array("I", prompt).tobytes()).hexdigest()
        if self.tally is not None:
            self.tally["histories"] += 1
            self.tally["turns"] += len(record.turns)
            for reason, count in record.branch_reasons.items():
                self.tally[reason] = self.tally.get(reason, 0) + count

    # how it is driven

    def run(self, *conversations: Conversation, gives_up: bool = False) -> list[Any]:
        """Replies to requests at the same time. gives_up: each client leaves once, while its turn is sampled."""
        return self.loop.run_until_complete(self._run(conversations, gives_up=gives_up))

    async def _run(self, conversations: Sequence[Conversation], *, gives_up: bool) -> list[Any]:
        bodies = [self._body(conversation) for conversation in conversations]
        if gives_up:
            for body in bodies:
                client = asyncio.create_task(self.session.answer(body))
                await asyncio.sleep(0)
                client.cancel()
                await asyncio.wait([client])
        return list(await asyncio.gather(*map(self.session.answer, bodies)))

    def _body(self, conversation: Conversation) -> bytes:
        tools = self.loaded.tool_sets[conversation.tools]
        return json.dumps({"model": "policy", "messages": conversation.messages, "tools": tools}).encode()
