"""Finding a model's tokenizer and chat template on disk or on the Hugging Face hub.

Only the small text files are read or downloaded, never weights, and nothing of transformers is imported: this runs
in the driver. A template in its own file (`chat_template.jinja`) wins over one inside `tokenizer_config.json`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from drydock.errors import TemplateError, UserError

WANTED = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja")
_TOKEN_NAMES = ("bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class TemplateFiles:
    """What a model folder says about text.

    special_tokens: text by name (`eos_token`, ...); eos_ids: every id that the model's own files call an end.
    """

    tokenizer: Tokenizer
    source: str
    special_tokens: dict[str, str]
    eos_ids: frozenset[int]
    origin: str


def read_tokenizer(model: str | Path) -> Tokenizer:
    """A model's tokenizer alone, chat template or not. Raises UserError when there is none."""
    return _tokenizer(_folder(model))


def read_template_files(model: str | Path) -> TemplateFiles:
    """Read the files of a model folder, or of a hub id through the local hub cache and then the network.

    Raises UserError when the folder, the hub files or the tokenizer are missing, TemplateError when there is no
    chat template; the message names the folder and the remedy.
    """
    folder = _folder(model)
    tokenizer = _tokenizer(folder)
    config = _read_json(folder / "tokenizer_config.json")
    tokens = {name: text for name in _TOKEN_NAMES if (text := _token_text(config.get(name)))}
    ends = _read_json(folder / "generation_config.json").get("eos_token_id")
    eos_ids = {end for end in (ends if isinstance(ends, list) else [ends]) if isinstance(end, int)}
    if "eos_token" in tokens and (eos := tokenizer.token_to_id(tokens["eos_token"])) is not None:
        eos_ids.add(eos)
    return TemplateFiles(tokenizer, _template_source(folder, config), tokens, frozenset(eos_ids), str(model))


def _folder(model: str | Path) -> Path:
    folder = Path(model).expanduser()
    return folder if folder.is_dir() else _snapshot(str(model), folder)


def _tokenizer(folder: Path) -> Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise UserError(
            f"{folder} has no tokenizer.json; save the model's fast tokenizer there (tokenizer.save_pretrained)"
        )
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the tokenizers library raises plain Exception for an unreadable file
        raise UserError(f"{file} is not a tokenizer file: {error}") from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def _snapshot(model: str, folder: Path) -> Path:
    if model.count("/") > 1 or model.startswith((".", "/", "~")):
        raise UserError(
            f"no model folder at {folder}; give a folder that holds tokenizer.json, or a hub id (owner/name)"
        )
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import HFValidationError
    except ImportError as error:
        raise UserError(
            f"no model folder at {folder}, and the hub cannot be asked for {model!r}: install huggingface-hub"
        ) from error
    try:
        return Path(snapshot_download(model, allow_patterns=list(WANTED)))
    except (OSError, ValueError, HFValidationError) as error:  # offline, unknown, gated: hub errors are OSErrors
        raise UserError(
            f"no model folder at {folder}, and the tokenizer of hub model {model!r} is neither in the local hub cache "
            f"nor could it be downloaded ({type(error).__name__}); check name and network, or give a local folder"
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _token_text(value: object) -> str | None:
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _template_source(folder: Path, config: dict[str, Any]) -> str:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    source = config.get("chat_template")
    if isinstance(source, list):  # several named templates: tool use first, then the default one
        named = {entry.get("name"): entry.get("template") for entry in source if isinstance(entry, dict)}
        source = named.get("tool_use") or named.get("default")
    if not isinstance(source, str):
        raise TemplateError(
            f"{folder} has no chat template; put one into chat_template.jinja there (or use an instruction-tuned model)"
        )
    return source
