"""What can be seen of a model's folder without loading it."""

import json
from pathlib import Path

from drydock.errors import ConfigError

SETTING = "trainer.policy.model.path"


def check_model_folder(path: str, context_tokens: int, context_setting: str) -> None:
    """Raise ConfigError when the local folder is missing or incomplete, or its context shorter than what is asked for.

    context_setting: the key that asks for `context_tokens`. A hub id is left to the service, which downloads it.
    """
    folder = Path(path)
    if not folder.is_dir():
        if folder.is_absolute() or path.startswith("."):
            raise ConfigError(f"{SETTING}: no such model folder: {folder}")
        return
    description = folder / "config.json"
    if not description.is_file():
        raise ConfigError(f"{SETTING}: {folder} has no config.json; give a Hugging Face model folder")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise ConfigError(f"{SETTING}: {folder} holds no weights; give a folder with *.safetensors")
    try:
        settings = json.loads(description.read_text())
    except ValueError as error:
        raise ConfigError(f"{SETTING}: {description} is not valid JSON: {error}") from None
    context = settings.get("max_position_embeddings")
    if isinstance(context, int) and context < context_tokens:
        raise ConfigError(
            f"{context_setting} is {context_tokens}, but the model in {folder} was made for {context} tokens "
            "(max_position_embeddings); lower it"
        )
