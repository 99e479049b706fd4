"""What an unknown setting was meant to be: a name that other trainers use for it, or the same one mistyped.

A suggestion is made only where it is likely: a wrong one sends its reader further away than none. Otherwise the keys
that the section has are listed, or the sections.
"""

import difflib
import re
from collections.abc import Sequence

OTHER_NAMES: dict[str, tuple[str, ...]] = {
    "trainer.max_training_steps": ("num_steps", "max_steps", "steps", "total_steps", "total_training_steps"),
    "trainer.epochs": ("num_epochs", "num_train_epochs", "total_epochs"),
    "trainer.train_batch_size": ("batch_size", "per_device_train_batch_size", "global_batch_size"),
    "trainer.policy_mini_batch_size": ("mini_batch_size", "ppo_mini_batch_size"),
    "trainer.policy.model.path": ("model", "model_path", "model_name", "model_name_or_path", "path"),
    "trainer.policy.optimizer_config.lr": ("lr", "learning_rate"),
    "trainer.policy.optimizer_config.max_grad_norm": ("grad_clip", "gradient_clipping", "clip_grad"),
    "trainer.policy.optimizer_config.num_warmup_steps": ("warmup_steps", "lr_warmup_steps"),
    "trainer.policy.model.lora.rank": ("lora_rank", "lora_r"),
    "trainer.algorithm.policy_loss_type": ("loss_type", "loss_fn", "policy_loss"),
    "trainer.run_name": ("project_name", "experiment_name", "name"),
    "trainer.ckpt_path": ("output_dir", "ckpt_dir", "save_path", "default_local_dir"),
    "trainer.ckpt_interval": ("save_interval", "save_steps", "save_freq"),
    "trainer.eval_interval": ("eval_steps", "test_freq", "eval_freq"),
    "trainer.resume_mode": ("resume", "resume_from_checkpoint"),
    "generator.n_samples_per_prompt": ("n", "num_samples", "num_generations", "group_size", "rollout_n"),
    "generator.max_turns": ("max_iterations", "max_iteration_per_run"),
    "generator.max_input_length": ("max_model_len", "max_prompt_length", "max_seq_len"),
    "generator.sampling_params.max_generate_length": (
        "max_tokens",
        "max_new_tokens",
        "max_completion_length",
        "max_response_length",
    ),
    "data.train": ("train_files", "train_data", "train_file"),
    "data.eval": ("val_files", "val_data", "eval_data"),
    "data.max_length": ("max_seq_length", "max_seq_len"),
}
"""Names of a setting elsewhere (SkyRL, verl, TRL, vLLM), by the last part of a key."""

_ENTRY = re.compile(r"(\w+)\.\d+\.")
"""How the key of a list's entry begins: `warm_start.0.`"""


def suggestion(location: str, known: Sequence[str]) -> str:
    """`: did you mean …?`, or what is known there, for the unknown dotted key `location`."""
    entry = _ENTRY.match(location)
    if entry is not None:
        known = [key.replace(f"{entry[1]}.", entry[0], 1) for key in known if key.startswith(f"{entry[1]}.")]
    else:
        known = [key for key in known if key in OTHER_NAMES or not key.startswith("warm_start.")]
    found = _renamed(location, known) or _moved(location, known) or _mistyped(location, known)
    if found is not None:
        return f": did you mean {found}?"
    section = location.rpartition(".")[0]
    siblings = sorted({_beneath(section, key) for key in known if section and key.startswith(f"{section}.")})
    if siblings:
        return f" (known: {', '.join(siblings)})"
    return f" (sections: {', '.join(dict.fromkeys(key.partition('.')[0] for key in known))})"


def _beneath(section: str, key: str) -> str:
    """The key, or where it is deeper its section below `section`, as `trainer.policy.…`."""
    name, deeper, _ = key.removeprefix(f"{section}.").partition(".")
    return f"{section}.{name}{'.…' if deeper else ''}"


def _renamed(location: str, known: Sequence[str]) -> str | None:
    leaf = location.rpartition(".")[2]
    return next((key for key, names in OTHER_NAMES.items() if leaf in names and key in known), None)


def _moved(location: str, known: Sequence[str]) -> str | None:
    """The same name in another section, the one that is spelt most alike."""
    leaf = location.rpartition(".")[2]
    same = [key for key in known if key.rpartition(".")[2] == leaf]
    return next(iter(difflib.get_close_matches(location, same, n=1, cutoff=0.0)), None)


def _mistyped(location: str, known: Sequence[str]) -> str | None:
    """A key or a section at the same place whose name is spelt alike, or a key whose whole name is."""
    section, _, leaf = location.rpartition(".")
    start = f"{section}." if section else ""
    beside = [key.removeprefix(start).partition(".")[0] for key in known if key.startswith(start)]
    close = difflib.get_close_matches(leaf, dict.fromkeys(beside), n=1, cutoff=0.7)
    if close:
        return start + close[0]
    return next(iter(difflib.get_close_matches(location, known, n=1, cutoff=0.9)), None)
