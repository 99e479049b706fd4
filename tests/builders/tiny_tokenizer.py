"""A byte-level BPE tokenizer of a few hundred tokens with ChatML special tokens, in the Hugging Face layout."""

import json
from pathlib import Path

from builders.chat_template import HERMES_CHATML
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
_TEXT = [
    "system\nYou are an agent with a terminal. Use the tools to solve the task.",
    "user\nWrite the name of the file that defines the function into answer.txt.",
    'assistant\n<tool_call>\n{"name": "terminal", "arguments": {"command": "ls -la src"}}\n</tool_call>',
    "\n<tool_response>\n[exit code 0]\n</tool_response>",
    '{"type": "function", "function": {"name": "finish", "description": "", "parameters": {"type": "object"}}}',
]


def build_tiny_tokenizer(folder: Path, chat_template: str | None = HERMES_CHATML) -> Path:
    """Train and save the tokenizer (same result each time); returns `folder`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=480,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    if chat_template is not None:
        config["chat_template"] = chat_template
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
