"""The tokenizer that spells out a trajectory's tokens: the one named, or that of the run which the file is part of."""

import tomllib
from pathlib import Path

from tokenizers import Tokenizer

from drydock.chat.template_files import read_tokenizer
from drydock.errors import UserError


def tokenizer_for(file: Path, model: str | None) -> Tokenizer | None:
    """The tokenizer of `model`; without it that of the run's model, or None where that is not on this machine.

    Raises UserError when `model` has none.
    """
    if model is not None:
        return read_tokenizer(model)
    named = _model_of_run(file)
    if named is None or not Path(named).expanduser().is_dir():
        return None
    try:
        return read_tokenizer(named)
    except UserError:
        return None


def _model_of_run(file: Path) -> str | None:
    """The model that the configuration of the run names, whose folder is above the trajectory file."""
    for folder in file.resolve().parents:
        config = folder / "config.toml"
        if config.is_file() and (folder / "trajectories").is_dir():
            try:
                path = tomllib.loads(config.read_text(encoding="utf-8"))["trainer"]["policy"]["model"]["path"]
            except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError):
                return None
            return path if isinstance(path, str) else None
    return None
