"""What a model family is to a test: its files, what a turn of it can hold, and how it spells one."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from drydock.chat.template import ChatTemplate

type Calls = Sequence[tuple[str, dict[str, Any]]]
"""Name and arguments of each call of a turn."""

_TEXT = [
    "You are an agent with a terminal. Use the tools to solve the task.\nuser\nassistant\nsystem\n",
    "Write the name of the file that defines the function into answer.txt.",
    '{"name": "terminal", "arguments": {"command": "ls -la src"}}',
    '{"type": "function", "function": {"name": "finish", "description": "", "parameters": {"type": "object"}}}',
]


@dataclass(frozen=True)
class Family:
    """Calling it with a folder writes the family's tokenizer and template there and loads them.

    source: the chat template. special: tokens flagged special, in the order of their ids, and added: other added
    tokens, flagged as the family's tokenizer does. eos: the tokenizer's end token; ends: all that generation ends at.
    reply_text(content, calls, reasoning): the text that a model of the family samples for such a turn, after the
    generation prompt and without the stop token. stop: the token it samples after a turn without calls, call_stop:
    after one with calls. calls: the most calls that its template renders in a turn (0: the format has none). thinks:
    whether a turn may hold reasoning.
    """

    name: str
    source: str
    special: tuple[str, ...]
    added: tuple[str, ...]
    eos: str
    ends: tuple[str, ...]
    reply_text: Callable[[str, Calls, str], str]
    stop: str
    call_stop: str
    bos: str | None = None
    calls: int = 3
    thinks: bool = False

    def __call__(self, folder: Path) -> ChatTemplate:
        return ChatTemplate.load(self.write(folder))

    def write(self, folder: Path) -> Path:
        """Train and save the tokenizer and write the template (same result each time); returns `folder`."""
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
        )
        tokenizer.train_from_iterator(_TEXT, trainer)
        tokenizer.add_special_tokens(list(self.special))
        tokenizer.add_tokens(list(self.added))
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer.save(str(folder / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": self.eos, "bos_token": self.bos}
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
        ends = [tokenizer.token_to_id(end) for end in self.ends]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}), encoding="utf-8")
        (folder / "chat_template.jinja").write_text(self.source, encoding="utf-8")
        return folder

    def sampled_ids(
        self, template: ChatTemplate, content: str, calls: Calls = (), reasoning: str = "", *, ended: bool = True
    ) -> list[int]:
        """The ids that a model samples for such a turn, with its stop token unless the token limit cut it."""
        ids = template.encode(self.reply_text(content, calls, reasoning))
        stop = template.tokenizer.token_to_id(self.call_stop if calls else self.stop)
        assert stop is not None
        return [*ids, stop] if ended else ids


def json_text(value: object) -> str:
    """JSON as chat templates write it."""
    return json.dumps(value, ensure_ascii=False)
