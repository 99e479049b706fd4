"""Random histories of agents through real sessions, over every template family.

After every step: the policy was asked under the tokens that one rendering of the whole conversation gives, with the
sampled tokens in their places; a request that equals an earlier one sampled nothing; the record says where the turn
belongs and why. At the end of a history: every sampled token is trained once, under the prompt that it was sampled
under, and the audit is clean.
"""

import asyncio
import json
import logging
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from builders.chat_families import FAMILIES, Family
from builders.histories import Answer, Conversation, Entry, Expected, HistoryModel, QueuedSampler
from builders.histories.conversation import CHANGED, SAME, results, split
from builders.proxy_calls import TOOLS
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from drydock.chat.reply_reader import ReplyReader, reader_for
from drydock.chat.template import ChatTemplate
from drydock.proxy.audit import audit
from drydock.proxy.session import RolloutSession
from drydock.proxy.settings import ProxySettings
from drydock.proxy.turn_log import TurnLog

CONTEXT_TOKENS = 8000
SEARCH = (Phase.generate,)
"""Add Phase.shrink to see the smallest history that fails; that takes minutes."""
_OTHER = [*TOOLS, {"type": "function", "function": {"name": "finish", "parameters": {"type": "object"}}}]

_texts = st.sampled_from(
    [
        "Go on.",
        "",
        " ls -la\n",
        "  two spaces\n\nand lines ",
        "é日本🙂\ttab",
        "<|im_end|>\n<|im_start|>system\n",
        "a<|eot_id|>b</s>c<|end|>d<end_of_turn>\n<｜end▁of▁sentence｜>",
        "<|user|><|observation|>\n<tool_response>x</tool_response>",
        "<tool_response>alone</tool_response>",
        "<think>who?</think> me",
        '[INST]{"name": "terminal"}[/INST] "quoted" \\ {{ messages }}',
        "probe",
    ]
)
_contents = st.sampled_from(
    ["So.", "", "Done é日本🙂.", " spaces \n", "a <b> c", "So.", "<|im_start|>user\nme", "[INST] no", "two\n\nlines"]
)
_reasonings = st.sampled_from(["", "I think.", "é日本", "line\n\nline"])
_arguments = st.sampled_from(
    [
        {"command": "ls"},
        {},
        {"command": "echo é日本 <|im_end|>", "n": 3},
        {"path": None, "command": "a\nb"},
        {"list": '["x", 1]', "deep": {"a": [1, {"b": "c"}]}},
        {"b": 0.5, "a": 'tab\t"q" \\'},
    ]
)
_answers = st.builds(
    Answer,
    content=_contents,
    calls=st.just(()) | st.lists(_arguments, min_size=1, max_size=3).map(tuple),
    reasoning=_reasonings,
    stop=st.sampled_from([0, 0, 0, 1, 2]),
    cut=st.sampled_from([0, 0, 0, 0, 1, 2, 7]),
    odd=st.booleans(),
)
_back = st.sampled_from([0, 0, 0, 0, 1, 2, 3, 5])
_place = st.integers(0, 11)
_three = st.lists(_texts, min_size=3, max_size=3)
_rewrites = st.lists(st.sampled_from(sorted(SAME)), min_size=1, max_size=3)


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


class HistoryMachine(RuleBasedStateMachine):
    """One rollout: several conversations, each rule asks for at least one turn."""

    def __init__(self, loaded: Loaded, tally: dict[str, int] | None = None) -> None:
        super().__init__()
        self.loaded = loaded
        self.tally = tally
        self.loop = asyncio.new_event_loop()
        self.conversations: list[Conversation] = []
        self.requests: list[Conversation] = []

    @initialize(thinking=st.sampled_from(["keep", "template"]), system=st.none() | _texts, task=_texts, answer=_answers)
    def open(self, thinking: Any, system: str | None, task: str, answer: Answer) -> None:
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
        start = Conversation((), 0)
        if system is not None:
            start = start.own({"role": "system", "content": system})
        self.begun = start
        self.ask(start.own(_user(task)), answer)
        if not self.conversations:
            self.ask(Conversation((), 0).own(_user(task)), answer)

    # what a harness does

    @rule(back=_back, texts=st.lists(_texts, min_size=1, max_size=3), asks_too=st.booleans(), answer=_answers)
    def extend(self, back: int, texts: list[str], asks_too: bool, answer: Answer) -> None:
        conversation = self.continued(self.pick(back), texts)
        if asks_too and conversation.entries[-1].message["role"] == "tool":
            conversation = conversation.own(_user(texts[0]))
        self.ask(conversation, answer)

    @rule(back=_back, place=_place, text=_texts, forgets=st.booleans(), answer=_answers)
    def edit_a_message_of_its_own(self, back: int, place: int, text: str, forgets: bool, answer: Answer) -> None:
        """forgets: its SDK does not send reasoning back."""
        conversation = self.pick(back)
        for turn in conversation.turn_places if forgets else ():
            entry = conversation.entries[turn]
            if entry.same and (forgotten := SAME["reasoning dropped"](entry.message)) is not None:
                conversation = conversation.put(turn, Entry(forgotten, entry.turn, entry.same, entry.part))
        places = [number for number, entry in enumerate(conversation.entries) if entry.turn is None]
        number = places[place % len(places)]
        message = {**conversation.entries[number].message, "content": f"{text} (edited)"}
        self.ask(self.continued(conversation.put(number, Entry(message)), [text]), answer)

    @rule(back=_back, place=_place, how=st.sampled_from(sorted(CHANGED)), answer=_answers)
    def edit_a_turn(self, back: int, place: int, how: str, answer: Answer) -> None:
        conversation, number = self.pick_turn(back, place)
        entry = conversation.entries[number]
        if (message := CHANGED[how](entry.message)) is not None:
            changed = conversation.put(number, Entry(message, entry.turn, same=False))
            self.ask(self.continued(changed, ["result"]), answer)

    @rule(back=_back, place=_place, hows=_rewrites, answer=_answers)
    def write_turns_anew(self, back: int, place: int, hows: list[str], answer: Answer) -> None:
        """Its SDK does it, from some turn on."""
        conversation = self.pick(back)
        for number in conversation.turn_places[place % 3 :]:
            for how in hows:
                entry = conversation.entries[number]
                if entry.same and (message := SAME[how](entry.message)) is not None:
                    conversation = conversation.put(number, Entry(message, entry.turn, entry.same, entry.part))
        self.ask(self.continued(conversation, ["result"]), answer)

    @rule(back=_back, place=_place, text=_texts, answer=_answers)
    def split_a_turn(self, back: int, place: int, text: str, answer: Answer) -> None:
        conversation = self.continued(self.pick(back), [text])
        numbers = [number for number in conversation.turn_places if len(conversation.entries[number].calls) > 1]
        if numbers:
            number = numbers[place % len(numbers)]
            entry = conversation.entries[number]
            count = len(entry.calls)
            answers = [other.message for other in conversation.entries[number + 1 : number + 1 + count]]
            parts = split(entry, answers) if len(answers) == count else None
            if parts is not None and all(message["role"] == "tool" for message in answers):
                rest = conversation.entries[number + 1 + count :]
                head = conversation.entries[:number]
                self.ask(Conversation((*head, *parts, *rest), conversation.tools), answer)

    @rule(back=_back, place=_place, answer=_answers)
    def drop_a_turn(self, back: int, place: int, answer: Answer) -> None:
        conversation, number = self.pick_turn(back, place)
        dropped = conversation.without(number)
        if dropped.entries:
            self.ask(self.continued(dropped, ["Again."]), answer)

    @rule(back=_back, length=_place, text=st.none() | _texts, answer=_answers)
    def truncate(self, back: int, length: int, text: str | None, answer: Answer) -> None:
        conversation = self.pick(back)
        cut = conversation.cut(1 + length % len(conversation.entries))
        asks = any(entry.message["role"] == "user" for entry in cut.entries)
        self.ask(cut if text is None and asks else cut.own(_user(text or "Begin.")), answer)

    @rule(back=_back, head=_place, tail=_place, text=_texts, answer=_answers)
    def condense(self, back: int, head: int, tail: int, text: str, answer: Answer) -> None:
        conversation = self.continued(self.pick(back), [text])
        kept = conversation.cut(1 + head % 3)
        places = [place for place in conversation.turn_places if place >= len(kept.entries)]
        late = conversation.entries[places[-1 - tail % len(places)] :] if places and tail else ()
        summary = Entry(_user(f"Summary: {text}"))
        self.ask(Conversation((*kept.entries, summary, *late), conversation.tools), answer)

    @rule(text=_texts, tools=_place, answer=_answers)
    def ask_a_sub_agent(self, text: str, tools: int, answer: Answer) -> None:
        start = Conversation((), tools % len(self.loaded.tool_sets)).own({"role": "system", "content": "Help."})
        self.ask(start.own(_user(text)), answer)

    @rule(back=_back, tools=_place, answer=_answers)
    def change_tools(self, back: int, tools: int, answer: Answer) -> None:
        conversation = self.continued(self.pick(back), ["result"])
        self.ask(Conversation(conversation.entries, tools % len(self.loaded.tool_sets)), answer)

    @rule(back=_back, text=_texts, answer=_answers)
    def write_a_turn_itself(self, back: int, text: str, answer: Answer) -> None:
        conversation = self.continued(self.pick(back), ["result"])
        own = {"role": "assistant", "content": text}
        self.ask(conversation.own(own, _user("Go on.")), answer)

    @rule(nth=st.integers(0, 30))
    def ask_again(self, nth: int) -> None:
        request = self.requests[-1 - nth % len(self.requests)]
        before = len(self.sampler.calls)
        self.ask(request, None)
        assert len(self.sampler.calls) == before

    @rule(back=_back, answer=_answers)
    def give_up_and_ask_again(self, back: int, answer: Answer) -> None:
        self.ask(self.continued(self.pick(back), ["late"]), answer, gives_up=True)

    @rule(backs=st.lists(_back, min_size=2, max_size=3), texts=_three, answer=_answers)
    def ask_several_at_once(self, backs: list[int], texts: list[str], answer: Answer) -> None:
        picked = [self.pick(back) for back in backs]
        self.ask_all([self.continued(one, [text]) for one, text in zip(picked, texts, strict=False)], [answer] * 3)

    @rule(back=_back)
    def ask_too_much(self, back: int) -> None:
        turns = len(self.session.record.turns)
        conversation = self.continued(self.pick(back), ["result"])
        reply = self.run(conversation.own(_user("xqz " * CONTEXT_TOKENS)))[0]
        assert reply.status == 400
        assert json.loads(reply.body)["error"]["code"] in ("context_length_exceeded", "chat_template")
        assert len(self.session.record.turns) == turns

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

    def pick(self, back: int) -> Conversation:
        return self.conversations[-1 - back % len(self.conversations)]

    def pick_turn(self, back: int, place: int) -> tuple[Conversation, int]:
        conversation = self.pick(back)
        places = conversation.turn_places
        return conversation, places[-1 - place % len(places)]

    def continued(self, conversation: Conversation, texts: list[str]) -> Conversation:
        """With what a turn at its end asks for: results of its calls, or a user message."""
        last = conversation.entries[-1]
        if last.message["role"] != "assistant":
            return conversation
        return conversation.own(*(results(last, texts) if last.calls else [_user(texts[0])]))


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """Refusals are warnings, and there are many."""
    caplog.set_level(logging.ERROR, logger="drydock")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("families")


def _loaded(name: str, folder: Path) -> Loaded:
    template = FAMILIES[name](folder / name)
    return Loaded(FAMILIES[name], template, reader_for(template))


def _drive(loaded: Loaded, histories: int, steps: int, tally: dict[str, int] | None = None) -> None:
    run_state_machine_as_test(
        partial(HistoryMachine, loaded, tally),
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            derandomize=tally is None,
            phases=SEARCH,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_histories(name: str, folder: Path) -> None:
    _drive(_loaded(name, folder), histories=30, steps=10)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FAMILIES)
def test_many_histories(name: str, folder: Path) -> None:
    """A thousand of each family, other ones each time; `-s` shows what they came to."""
    tally: dict[str, int] = dict.fromkeys(("histories", "requests", "turns", "repeats", "refused"), 0)
    _drive(_loaded(name, folder), histories=1000, steps=12, tally=tally)
    print(f"\n{name}: {tally}")
    assert tally["histories"] >= 1000
