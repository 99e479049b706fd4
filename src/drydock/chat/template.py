"""A model's chat template and tokenizer, and the one operation that the token ledger stands on: a continuation.

A conversation is rendered in full once, for its first call or where a branch begins. After that only what the harness
added is rendered, as the text that follows a stand-in for the sampled turn (`drydock.chat.continuation`). A template is
probed when it is loaded (`drydock.chat.template_probe`); one that cannot be continued exactly is refused then.

Special tokens cut a text before it is tokenized, so parts that meet at one can be tokenized apart and cached
(`drydock.chat.first_prompt`); that is checked at load. Text in messages that only looks like a special token stays text
(`drydock.chat.special_text`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drydock.chat.continuation import ContinuationText
from drydock.chat.first_prompt import FirstPrompts
from drydock.chat.jinja_environment import compile_template
from drydock.chat.messages import ToolCall, clean_text
from drydock.chat.special_text import SpecialText
from drydock.chat.template_files import TemplateFiles, read_template_files
from drydock.chat.template_probe import TemplateFacts, find_generation_prompt, probe
from drydock.chat.template_text import TemplateText
from drydock.chat.turn_ending import find_turn_ending
from drydock.chat.written_turn import written_turn
from drydock.errors import TemplateError


class ChatTemplate:
    """Renders conversations to text and text to token ids, as the model's own files say.

    source: the template's text. facts: what it does with a growing conversation.
    turn_end: text of the special token at which an assistant turn without calls ends; turn_end_id: its id;
    call_end_id: of the one after a turn with calls, which is the same in most families.
    stop_ids: ids at which sampling must stop (the model's ends and those two), ascending.
    """

    def __init__(self, files: TemplateFiles) -> None:
        """Raises TemplateError when the template cannot be continued token-exactly."""
        self.origin = files.origin
        self.tokenizer = files.tokenizer
        self.source = files.source
        self._special = SpecialText(
            files.tokenizer, "\n".join([files.source, *files.special_tokens.values()]), files.origin
        )
        render = compile_template(files.source, files.special_tokens, files.origin)
        self._text = TemplateText(render, self._special, files.origin)
        generation_prompt = find_generation_prompt(self._text, self._special)
        ending = find_turn_ending(self._text, self._special, generation_prompt, files.origin)
        self._own_end = ending.own_token
        self.turn_end = ending.plain
        self.turn_end_id = self._special.tokens[ending.plain]
        self.call_end_id = self._special.tokens[ending.after_calls]
        self.stop_ids: tuple[int, ...] = tuple(sorted({*files.eos_ids, self.turn_end_id, self.call_end_id}))
        self._check_separable()
        self._continuation = ContinuationText(self._text, self._special, ending, generation_prompt, files.origin)
        self.facts: TemplateFacts = probe(self._text, self._continuation, generation_prompt, files.origin)
        self._first_prompts = FirstPrompts(self._text, self._special)

    @classmethod
    def load(cls, model: str | Path) -> "ChatTemplate":
        """Load from a model folder or a hub id; raises UserError or TemplateError naming folder and remedy."""
        return cls(read_template_files(model))

    def __repr__(self) -> str:
        return f"ChatTemplate({self.origin!r})"

    @property
    def generation_prompt(self) -> str:
        """Text that follows a last user message to ask for a turn."""
        return self.facts.generation_prompt

    @property
    def opens_reasoning(self) -> bool:
        """Whether the generation prompt ends inside a thinking block."""
        return self.facts.opens_reasoning

    @property
    def strips_reasoning(self) -> bool:
        """Whether a full rendering leaves out the thinking of turns before the last user message."""
        return self.facts.strips_reasoning

    @property
    def rewrites_history(self) -> tuple[str, ...]:
        """Situations in which `continuation` raises HistoryRewritten, as clauses."""
        return self.facts.rewrites_history

    def render(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, add_generation_prompt: bool
    ) -> str:
        """Text of a whole conversation; raises TemplateError when the template refuses it.

        Special tokens that a message spells are in it as they are; `encode` would read them as tokens.
        """
        return self._text.render(messages, tools, add_generation_prompt)

    def encode(self, text: str) -> list[int]:
        """Token ids of `text`; special tokens written in it become their ids, none is added."""
        return self.tokenizer.encode(clean_text(text), add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`, special tokens spelt out."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def turn_text(self, sampled_ids: Sequence[int]) -> str:
        """Text of a sampled assistant turn without the stop token at its end."""
        ids = list(sampled_ids)
        if ids and ids[-1] in self.stop_ids:
            ids.pop()
        return self.decode(ids)

    def first_prompt(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None
    ) -> tuple[int, ...]:
        """Token ids of a conversation rendered in full, generation prompt included.

        It may hold earlier assistant messages, which are tokenized as the template writes them.
        Raises TemplateError when the template refuses it, or has no place for the tools.
        """
        return self._first_prompts.ids(messages, tools)

    def continuation(
        self,
        added: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None,
        *,
        tools_key: str,
        last_id: int | None,
        calls: Sequence[ToolCall] = (),
    ) -> list[int]:
        """Token ids that follow a sampled assistant turn when the harness added `added` and asks for the next turn.

        tools_key: a text that is equal for equal `tools`. last_id: the last id that was sampled, None for none: the end
        of the turn is part of the continuation unless it was sampled, in whichever of the model's ways to end a turn.
        calls: of the sampled turn; some templates name them again beside their results.
        Raises HistoryRewritten where the messages before the turn would be written differently now, and TemplateError
        where the template refuses `added`.
        """
        end, rest = self._continuation.after_turn(added, tools, tools_key, calls)
        end_id = self._special.tokens[end]
        ended = last_id == end_id or (self._own_end and last_id in self.stop_ids)
        ids = self._special.encode(rest)
        return ids if ended else [end_id, *ids]

    def turn_ids(self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None) -> tuple[int, ...]:
        """The ids that a policy would sample as the last message: as the template writes it, its end included.

        Raises TemplateError when the template does not show them exactly.
        """
        end_id = self.call_end_id if messages[-1].get("tool_calls") else self.turn_end_id
        end = self.tokenizer.id_to_token(end_id) if self._own_end else None
        turn = written_turn(self._text, self._special, messages, tools, end=end, origin=self.origin)
        return (*self._special.encode(turn), end_id)

    def _check_separable(self) -> None:
        for end in (self.turn_end, self.tokenizer.id_to_token(self.call_end_id)):
            head, rest = f"user\n a{end}", "\n b  c"
            if self.encode(head) + self.encode(rest) != self.encode(head + rest):
                raise TemplateError(
                    f"the tokenizer of {self.origin} reads a text differently after {end!r} than on its own; "
                    "turns could not be joined token-exactly"
                )
