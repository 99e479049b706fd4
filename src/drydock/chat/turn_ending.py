"""How assistant turns end in a template: with a token of their own, or with the token that begins the next message.

Most families write an end token after each turn: always the same (Qwen, Gemma, DeepSeek, Mistral), or one that depends
on the turn (Harmony: <|call|> after a call, <|return|> after the last message, <|end|> once that is history). Models
may sample another one (Llama: <|eom_id|>). Whichever stop token was sampled stands for the written one. GLM writes no
end: there the model samples the token of the next role, and only that very token stands for itself.
"""

from dataclasses import dataclass

from drydock.chat.special_text import SpecialText
from drydock.chat.template_text import MARK, USER, TemplateText, call_turn
from drydock.errors import TemplateError


@dataclass(frozen=True, slots=True)
class TurnEnding:
    """The tokens at which turns end.

    own_token: whether the template writes an end of its own. plain and after_calls: texts of the tokens that a model
    samples at the end of a turn without and with calls.
    """

    own_token: bool
    plain: str
    after_calls: str


def find_turn_ending(template: TemplateText, special: SpecialText, generation_prompt: str, origin: str) -> TurnEnding:
    """Find it by rendering. Raises TemplateError when turns do not end at a special token."""
    before = template.render([USER], None, True).removesuffix(generation_prompt)
    head, found, tail = template.render([USER, {"role": "assistant", "content": MARK}], None, False).partition(MARK)
    if not found or MARK in tail or not head.startswith(before):
        raise TemplateError(
            f"the chat template of {origin} does not render a conversation as a prefix of its continuation"
        )
    own = special.leading(tail, 0)
    if own is None and tail.strip():
        raise _no_token(origin, tail)
    plain = own or _next_role(template, special, origin, [USER, {"role": "assistant", "content": MARK}, USER], 0)
    after_calls = _after_calls(template, special, origin, own_token=own is not None) if template.shows_calls else plain
    return TurnEnding(own is not None, plain, after_calls)


def _after_calls(template: TemplateText, special: SpecialText, origin: str, *, own_token: bool) -> str:
    turn = call_turn("", {"key": MARK})
    tail = template.render([USER, turn], None, False).rpartition(MARK)[2]
    if not own_token:
        result = {"role": "tool", "content": "probe", "tool_call_id": turn["tool_calls"][0]["id"], "name": "probe"}
        return _next_role(template, special, origin, [USER, turn, result], len(tail))
    written = [text for text in special.tokens if text in tail]
    if not written:
        raise _no_token(origin, tail)
    return max(written, key=lambda text: tail.rfind(text) + len(text))


def _next_role(
    template: TemplateText, special: SpecialText, origin: str, messages: list[dict[str, object]], skipped: int
) -> str:
    tail = template.render(messages, None, False).rpartition(MARK)[2][skipped:]
    token = special.leading(tail, 0)
    if token is None:
        raise _no_token(origin, tail)
    return token


def _no_token(origin: str, tail: str) -> TemplateError:
    return TemplateError(
        f"the chat template of {origin} ends an assistant turn with {tail[:20]!r}, which does not begin with a special "
        "token of the tokenizer; turns could not be joined token-exactly"
    )
