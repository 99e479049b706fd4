"""A model's chat template and tokenizer, and the one operation that the token ledger stands on: a continuation.

A conversation is rendered in full once, for its first call. After that only what the harness added is rendered: the
template is applied to a probe conversation that ends in a placeholder assistant turn, once without and once with the
new messages, and the text after the placeholder is what has to follow the tokens that were really sampled. Both
renderings must agree on everything before the assistant turn, and the shorter one's end (the turn's end token and the
separator after it) must be where the longer one goes on; a template for which that does not hold is refused.
How the template dresses the placeholder itself (a thinking block that is hidden later, say) does not matter, because
the sampled tokens stand in its place.

Special tokens cut a text before it is tokenized, so parts that meet at one can be tokenized apart and cached. The
class checks that at load and keeps two caches, both bounded: tokens of a head (system prompt and tools, shared by all
rollouts of a run) and of a whole first prompt (shared by a group).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drydock.bounded_cache import BoundedCache
from drydock.chat.jinja_environment import compile_template
from drydock.chat.messages import clean_text
from drydock.chat.template_files import TemplateFiles, read_template_files
from drydock.errors import TemplateError

PLACEHOLDER = "8f1d3c6a5b7e"
"""Stands for the sampled assistant turn; any text that no template writes."""

_PROBE: list[dict[str, Any]] = [{"role": "user", "content": "probe"}]
_PLACED: list[dict[str, Any]] = [*_PROBE, {"role": "assistant", "content": PLACEHOLDER}]
_HEADS = 64
_PROMPTS = 256
_BASES = 64


class ChatTemplate:
    """Renders conversations to text and text to token ids, as the model's own files say.

    turn_end: text of the special token that ends an assistant turn; turn_end_id: its id.
    stop_ids: ids at which sampling must stop (the model's ends and `turn_end_id`), ascending.
    """

    def __init__(self, files: TemplateFiles) -> None:
        """Raises TemplateError when the template cannot be continued token-exactly."""
        self.origin = files.origin
        self.tokenizer = files.tokenizer
        self._render = compile_template(files.source, files.special_tokens, files.origin)
        self._heads: BoundedCache[str, list[int]] = BoundedCache(_HEADS)
        self._prompts: BoundedCache[str, tuple[int, ...]] = BoundedCache(_PROMPTS)
        self._bases: BoundedCache[str, tuple[str, str]] = BoundedCache(_BASES)
        self.turn_end, self.turn_end_id = self._find_turn_end()
        self.stop_ids: tuple[int, ...] = tuple(sorted(files.eos_ids | {self.turn_end_id}))
        self._check_separable()

    @classmethod
    def load(cls, model: str | Path) -> "ChatTemplate":
        """Load from a model folder or a hub id; raises UserError or TemplateError naming folder and remedy."""
        return cls(read_template_files(model))

    def __repr__(self) -> str:
        return f"ChatTemplate({self.origin!r})"

    def render(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] | None, add_generation_prompt: bool
    ) -> str:
        """Text of a whole conversation; raises TemplateError when the template refuses it."""
        return self._render(
            messages=list(messages), tools=list(tools) if tools else None, add_generation_prompt=add_generation_prompt
        )

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
        """Token ids of a conversation rendered in full, generation prompt included."""
        text = self.render(messages, tools, True)
        ids = self._prompts.get(text)
        if ids is None:
            cut = text.find(self.turn_end) + len(self.turn_end)
            head, rest = (text[:cut], text[cut:]) if cut >= len(self.turn_end) else ("", text)
            head_ids = self._heads.get(head)
            if head_ids is None:
                head_ids = self._heads.put(head, self.encode(head))
            ids = self._prompts.put(text, (*head_ids, *self.encode(rest)))
        return ids

    def continuation(
        self,
        added: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]] | None,
        *,
        tools_key: str,
        turn_ended: bool,
    ) -> list[int]:
        """Token ids that follow a sampled assistant turn when the harness added `added` and asks for the next turn.

        tools_key: a text that is equal for equal `tools`. turn_ended: whether the sampled turn ended in `turn_end_id`;
        where it did not (cut by the token limit), the end token is part of the continuation.
        Raises TemplateError when the two renderings do not share what they must.
        """
        base = self._bases.get(tools_key)
        if base is None:
            base = self._bases.put(tools_key, self._placed_base(tools))
        before, turn_tail = base
        full = self.render([*_PLACED, *added], tools, True)
        place = full.find(PLACEHOLDER)
        tail = full[place + len(PLACEHOLDER) :]
        if place < 0 or not full.startswith(before) or not tail.startswith(turn_tail):
            raise TemplateError(
                f"the chat template of {self.origin} rewrites earlier turns when messages with roles "
                f"{[message.get('role') for message in added]} follow; it cannot be continued token-exactly"
            )
        return self.encode(tail[len(self.turn_end) :] if turn_ended else tail)

    def _placed_base(self, tools: Sequence[dict[str, Any]] | None) -> tuple[str, str]:
        """Text before the placeholder's turn, and the text that the template writes after the placeholder."""
        before = self.render(_PROBE, tools, False)
        placed = self.render(_PLACED, tools, False)
        head, found, tail = placed.partition(PLACEHOLDER)
        if not found or PLACEHOLDER in tail or not head.startswith(before):
            raise TemplateError(
                f"the chat template of {self.origin} does not render a conversation as a prefix of its continuation"
            )
        return before, tail

    def _find_turn_end(self) -> tuple[str, int]:
        _, tail = self._placed_base(None)
        ids = self.encode(tail)
        special = self.tokenizer.get_added_tokens_decoder()
        if not ids or ids[0] not in special or not tail.startswith(special[ids[0]].content):
            raise TemplateError(
                f"the chat template of {self.origin} ends an assistant turn with {tail[:20]!r}, which does not begin "
                "with a special token of the tokenizer; turns could not be joined token-exactly"
            )
        return special[ids[0]].content, ids[0]

    def _check_separable(self) -> None:
        head, rest = f"user\n a{self.turn_end}", "\n b  c"
        if self.encode(head) + self.encode(rest) != self.encode(head + rest):
            raise TemplateError(
                f"the tokenizer of {self.origin} reads a text differently after {self.turn_end!r} than on its own; "
                "turns could not be joined token-exactly"
            )
