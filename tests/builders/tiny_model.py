"""A Qwen3-shaped model of about 0.1 M parameters with its own tokenizer, as a Hugging Face folder.

Real in every part (architecture, byte-level BPE, chat template with tools), untrained, and small enough that
a forward pass takes a millisecond. `initializer_range` is 1/sqrt(hidden): at this size the library's 0.02 leaves
the logits so flat that the model hardly learns.
"""

import json
from pathlib import Path

CORPUS = (
    "You are a careful assistant that works in a shell. Call a tool when you need one, then answer.",
    'Write the word apple to the file out.txt, then finish. {"name": "terminal", "arguments": {"command": "ls -la"}}',
    "Find which file under src defines the function parse_config and write its path to answer.txt.",
    "grep -rn 'def main' . && cat README.md | head -20; echo done > /tmp/result.txt",
    "The quick brown fox jumps over the lazy dog. 0123456789 ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "user assistant system tool function name description parameters type object string properties required",
)
END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
MARKUP_TOKENS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")

HERMES_TEMPLATE = """\
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}
        {{- messages[0].content + '\\n\\n' }}
    {%- endif %}
    {{- 'Tools you may call, one JSON schema a line:\\n<tools>' }}
    {%- for tool in tools %}
        {{- '\\n' + (tool | tojson) }}
    {%- endfor %}
    {{- '\\n</tools>\\nA call is <tool_call>\\n{"name": NAME, "arguments": OBJECT}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' + (message.content or '') }}
        {%- for call in message.tool_calls or [] %}
            {%- set function = call.function if call.function else call %}
            {%- if not loop.first or message.content %}{{- '\\n' }}{%- endif %}
            {{- '<tool_call>\\n{"name": "' + function.name + '", "arguments": ' }}
            {{- function.arguments if function.arguments is string else function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""


def build_tiny_model(
    folder: Path,
    *,
    seed: int = 0,
    hidden_size: int = 64,
    layers: int = 2,
    head_dim: int = 16,
    vocab_size: int = 400,
    max_positions: int = 4096,
) -> Path:
    """Write the model and its tokenizer into `folder` (created) and return it. Same seed, same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    token_ids = _write_tokenizer(folder, vocab_size, max_positions)
    _write_model(folder, token_ids, seed, hidden_size, layers, head_dim, max_positions)
    return folder


def _write_tokenizer(folder: Path, vocab_size: int, max_positions: int) -> dict[str, int]:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS) - len(MARKUP_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS * 4, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in MARKUP_TOKENS])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "model_max_length": max_positions,
        "clean_up_tokenization_spaces": False,
        "chat_template": HERMES_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2))
    return tokenizer.get_vocab(with_added_tokens=True)


def _write_model(
    folder: Path,
    token_ids: dict[str, int],
    seed: int,
    hidden_size: int,
    layers: int,
    head_dim: int,
    max_positions: int,
) -> None:
    import torch
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=max(token_ids.values()) + 1,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // head_dim,
        num_key_value_heads=max(1, hidden_size // head_dim // 2),
        head_dim=head_dim,
        max_position_embeddings=max_positions,
        initializer_range=hidden_size**-0.5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=token_ids[TURN_END],
        pad_token_id=token_ids[END_OF_TEXT],
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.generation_config = GenerationConfig(
        eos_token_id=[token_ids[TURN_END], token_ids[END_OF_TEXT]], pad_token_id=token_ids[END_OF_TEXT]
    )
    model.save_pretrained(folder)
