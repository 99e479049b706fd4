"""Tiny random models of the architectures that users bring, as Hugging Face folders with the tiny model's tokenizer."""

import shutil
from pathlib import Path
from typing import Any

NAMES = ("qwen3", "qwen3.5 (linear attention)", "llama", "gemma 3", "qwen3-moe")
SIZES: dict[str, Any] = {
    "vocab_size": 400,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": 395,
    "pad_token_id": 393,
}


def build_architecture(name: str, folder: Path, tiny_model: str) -> str:
    """Write the model called `name` (one of NAMES) into `folder`; the folder's path."""
    return save_random_model(_config(name), folder, tiny_model)


def save_random_model(config: Any, folder: Path, tiny_model: str) -> str:
    """Write a model of that configuration into `folder`; the folder's path."""
    import torch
    import transformers

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.AutoModelForCausalLM.from_config(config)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.ndim >= 2:
                    parameter.normal_(std=0.15)
    model.save_pretrained(folder)
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(Path(tiny_model) / file, folder)
    return str(folder)


def _config(name: str) -> Any:
    import transformers

    match name:
        case "qwen3":
            return transformers.Qwen3Config(**SIZES, head_dim=8, tie_word_embeddings=True)
        case "qwen3.5 (linear attention)":
            return transformers.Qwen3_5TextConfig(
                **SIZES,
                head_dim=8,
                linear_key_head_dim=8,
                linear_value_head_dim=8,
                linear_num_key_heads=2,
                linear_num_value_heads=4,
                layer_types=["linear_attention", "full_attention"],
                tie_word_embeddings=True,
            )
        case "llama":
            return transformers.LlamaConfig(**SIZES)
        case "gemma 3":
            return transformers.Gemma3TextConfig(
                **SIZES, head_dim=8, sliding_window=24, layer_types=["sliding_attention", "full_attention"]
            )
        case "qwen3-moe":
            return transformers.Qwen3MoeConfig(
                **SIZES, head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, norm_topk_prob=True
            )
    raise ValueError(f"no tiny model is called {name!r}")
