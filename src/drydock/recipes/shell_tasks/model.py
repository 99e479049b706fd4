"""A tiny Qwen3 model in Hugging Face format: random weights, own tokenizer, Hermes-style chat template.

Written with numpy and safetensors alone, so that preparing the demo needs no torch. Weights are drawn with a standard
deviation of 1/sqrt(hidden): at this size the library's 0.02 hardly learns.
"""

import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

CONTROL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TOOL_CALL_TOKENS = ["<tool_call>", "</tool_call>"]
VOCABULARY = 1024
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, MLP = 128, 2, 4, 2, 32, 384
CONTEXT_TOKENS = 1024


def write_tiny_model(folder: Path, texts: Iterable[str], *, seed: int) -> Path:
    """Write the model to `folder`; its tokenizer is trained on `texts`."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = train_tokenizer(texts)
    tokenizer.save(str(folder / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab_size()
    end_of_turn, end_of_text = tokenizer.token_to_id("<|im_end|>"), tokenizer.token_to_id("<|endoftext|>")
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "model_max_length": CONTEXT_TOKENS,
            "clean_up_tokenization_spaces": False,
        },
    )
    template = resources.files("drydock.recipes.shell_tasks").joinpath("chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(template)
    _write_json(
        folder / "config.json",
        {
            "architectures": ["Qwen3ForCausalLM"],
            "model_type": "qwen3",
            "vocab_size": vocabulary,
            "hidden_size": HIDDEN,
            "intermediate_size": MLP,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_DIM,
            "max_position_embeddings": CONTEXT_TOKENS,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "attention_bias": False,
            "tie_word_embeddings": True,
            "initializer_range": HIDDEN**-0.5,
            "eos_token_id": end_of_turn,
            "pad_token_id": end_of_text,
            "dtype": "float32",
        },
    )
    _write_json(
        folder / "generation_config.json", {"eos_token_id": [end_of_turn, end_of_text], "pad_token_id": end_of_text}
    )
    save_file(_random_weights(vocabulary, seed), str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """Byte-level BPE; the chat markers are special tokens, the tool-call tags are whole tokens that decode as text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=CONTROL_TOKENS + TOOL_CALL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    description = json.loads(tokenizer.to_str())
    for token in description["added_tokens"]:
        token["special"] = token["content"] in CONTROL_TOKENS
    return Tokenizer.from_str(json.dumps(description))


def _random_weights(vocabulary: int, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return rng.normal(0.0, HIDDEN**-0.5, (rows, columns)).astype(np.float32)

    def ones(size: int) -> np.ndarray:
        return np.ones(size, np.float32)

    weights = {"model.embed_tokens.weight": matrix(vocabulary, HIDDEN), "model.norm.weight": ones(HIDDEN)}
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        weights |= {
            f"{prefix}input_layernorm.weight": ones(HIDDEN),
            f"{prefix}post_attention_layernorm.weight": ones(HIDDEN),
            f"{prefix}self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}self_attn.q_norm.weight": ones(HEAD_DIM),
            f"{prefix}self_attn.k_norm.weight": ones(HEAD_DIM),
            f"{prefix}mlp.gate_proj.weight": matrix(MLP, HIDDEN),
            f"{prefix}mlp.up_proj.weight": matrix(MLP, HIDDEN),
            f"{prefix}mlp.down_proj.weight": matrix(HIDDEN, MLP),
        }
    return weights


def _write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value, indent=2) + "\n")
