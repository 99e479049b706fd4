"""What harnesses do with their histories, as the rules of a state machine."""

import json
from typing import Any

from builders.histories import Answer, Conversation, Entry
from builders.histories.checked_rollout import CONTEXT_TOKENS, CheckedRollout
from builders.histories.conversation import CHANGED, SAME, results, split
from builders.histories.random_words import ANSWERS, BACK, PLACE, REWRITES, TEXTS, THREE
from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule


class HistoryMachine(CheckedRollout):
    """Several conversations, of which each rule picks some."""

    @initialize(thinking=st.sampled_from(["keep", "template"]), system=st.none() | TEXTS, task=TEXTS, answer=ANSWERS)
    def open(self, thinking: Any, system: str | None, task: str, answer: Answer) -> None:
        self.begin(thinking)
        start = Conversation((), 0)
        if system is not None:
            start = start.own({"role": "system", "content": system})
        self.ask(start.own(user(task)), answer)
        if not self.conversations:
            self.ask(Conversation((), 0).own(user(task)), answer)

    @rule(back=BACK, texts=st.lists(TEXTS, min_size=1, max_size=3), asks_too=st.booleans(), answer=ANSWERS)
    def extend(self, back: int, texts: list[str], asks_too: bool, answer: Answer) -> None:
        conversation = self.continued(self.pick(back), texts)
        if asks_too and conversation.entries[-1].message["role"] == "tool":
            conversation = conversation.own(user(texts[0]))
        self.ask(conversation, answer)

    @rule(back=BACK, place=PLACE, text=TEXTS, forgets=st.booleans(), answer=ANSWERS)
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

    @rule(back=BACK, place=PLACE, how=st.sampled_from(sorted(CHANGED)), answer=ANSWERS)
    def edit_a_turn(self, back: int, place: int, how: str, answer: Answer) -> None:
        conversation, number = self.pick_turn(back, place)
        entry = conversation.entries[number]
        if (message := CHANGED[how](entry.message)) is not None:
            changed = conversation.put(number, Entry(message, entry.turn, same=False))
            self.ask(self.continued(changed, ["result"]), answer)

    @rule(back=BACK, place=PLACE, hows=REWRITES, answer=ANSWERS)
    def write_turns_anew(self, back: int, place: int, hows: list[str], answer: Answer) -> None:
        """Its SDK does it, from some turn on."""
        conversation = self.pick(back)
        for number in conversation.turn_places[place % 3 :]:
            for how in hows:
                entry = conversation.entries[number]
                if entry.same and (message := SAME[how](entry.message)) is not None:
                    conversation = conversation.put(number, Entry(message, entry.turn, entry.same, entry.part))
        self.ask(self.continued(conversation, ["result"]), answer)

    @rule(back=BACK, place=PLACE, text=TEXTS, answer=ANSWERS)
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

    @rule(back=BACK, place=PLACE, answer=ANSWERS)
    def drop_a_turn(self, back: int, place: int, answer: Answer) -> None:
        conversation, number = self.pick_turn(back, place)
        dropped = conversation.without(number)
        if dropped.entries:
            self.ask(self.continued(dropped, ["Again."]), answer)

    @rule(back=BACK, length=PLACE, text=st.none() | TEXTS, answer=ANSWERS)
    def truncate(self, back: int, length: int, text: str | None, answer: Answer) -> None:
        conversation = self.pick(back)
        cut = conversation.cut(1 + length % len(conversation.entries))
        asks = any(entry.message["role"] == "user" for entry in cut.entries)
        self.ask(cut if text is None and asks else cut.own(user(text or "Begin.")), answer)

    @rule(back=BACK, head=PLACE, tail=PLACE, text=TEXTS, answer=ANSWERS)
    def condense(self, back: int, head: int, tail: int, text: str, answer: Answer) -> None:
        conversation = self.continued(self.pick(back), [text])
        kept = conversation.cut(1 + head % 3)
        places = [place for place in conversation.turn_places if place >= len(kept.entries)]
        late = conversation.entries[places[-1 - tail % len(places)] :] if places and tail else ()
        summary = Entry(user(f"Summary: {text}"))
        self.ask(Conversation((*kept.entries, summary, *late), conversation.tools), answer)

    @rule(text=TEXTS, tools=PLACE, answer=ANSWERS)
    def ask_a_sub_agent(self, text: str, tools: int, answer: Answer) -> None:
        start = Conversation((), tools % len(self.loaded.tool_sets)).own({"role": "system", "content": "Help."})
        self.ask(start.own(user(text)), answer)

    @rule(back=BACK, tools=PLACE, answer=ANSWERS)
    def change_tools(self, back: int, tools: int, answer: Answer) -> None:
        conversation = self.continued(self.pick(back), ["result"])
        self.ask(Conversation(conversation.entries, tools % len(self.loaded.tool_sets)), answer)

    @rule(back=BACK, text=TEXTS, answer=ANSWERS)
    def write_a_turn_itself(self, back: int, text: str, answer: Answer) -> None:
        conversation = self.continued(self.pick(back), ["result"])
        own = {"role": "assistant", "content": text}
        self.ask(conversation.own(own, user("Go on.")), answer)

    @rule(nth=st.integers(0, 30))
    def ask_again(self, nth: int) -> None:
        request = self.requests[-1 - nth % len(self.requests)]
        before = len(self.sampler.calls)
        self.ask(request, None)
        assert len(self.sampler.calls) == before

    @rule(back=BACK, answer=ANSWERS)
    def give_up_and_ask_again(self, back: int, answer: Answer) -> None:
        self.ask(self.continued(self.pick(back), ["late"]), answer, gives_up=True)

    @rule(backs=st.lists(BACK, min_size=2, max_size=3), texts=THREE, answer=ANSWERS)
    def ask_several_at_once(self, backs: list[int], texts: list[str], answer: Answer) -> None:
        picked = [self.pick(back) for back in backs]
        self.ask_all([self.continued(one, [text]) for one, text in zip(picked, texts, strict=False)], [answer] * 3)

    @rule(back=BACK)
    def ask_too_much(self, back: int) -> None:
        turns = len(self.session.record.turns)
        conversation = self.continued(self.pick(back), ["result"])
        reply = self.run(conversation.own(user("xqz " * CONTEXT_TOKENS)))[0]
        assert reply.status == 400
        assert json.loads(reply.body)["error"]["code"] in ("context_length_exceeded", "chat_template")
        assert len(self.session.record.turns) == turns

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
        return conversation.own(*(results(last, texts) if last.calls else [user(texts[0])]))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}
