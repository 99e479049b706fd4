"""Whether a model's files belong together: weights, description, tokenizer and chat template.

A checkpoint of another model, or a tokenizer that was copied from one, loads or trains without a word in some engines
and fails deep inside of others; here it is a sentence. Only headers of weight files are read.
"""

import json
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drydock.chat.reply_reader import ReplyReader
from drydock.chat.template import ChatTemplate
from drydock.finding import Finding, Level
from drydock.training.model_folder import SETTING

MAX_HEADER_BYTES = 256 << 20
_LAYER = re.compile(r"^(?:model\.)?(?:language_model\.)?(?:model\.)?layers\.(\d+)\.")
_EMBEDDING = re.compile(r"^(?:model\.)?(?:language_model\.)?(?:model\.)?embed_tokens\.weight$")


@dataclass(frozen=True, slots=True)
class Description:
    """What `config.json` says of a text model; None where it does not."""

    vocab_size: int | None
    hidden_size: int | None
    layers: int | None


def read_description(folder: Path) -> Description:
    """Of a model in `folder`, whose config.json is readable."""
    settings: dict[str, Any] = json.loads((folder / "config.json").read_text())
    text = settings.get("text_config") or settings
    sizes = [text.get(key) for key in ("vocab_size", "hidden_size", "num_hidden_layers")]
    return Description(*(size if isinstance(size, int) else None for size in sizes))


def check_template(template: ChatTemplate, reader: ReplyReader) -> list[Finding]:
    """What the chat template is read as; a template that cannot be continued is refused when it is loaded."""
    facts = template.facts
    notes = [f"tool calls are read as {reader.format}"]
    notes += ["turns begin inside thinking"] if facts.opens_reasoning else []
    notes += ["earlier thinking is left out of full renderings"] if facts.strips_reasoning else []
    if reader.format_known:
        return [Finding("chat template", Level.PASS, "; ".join(notes))]
    detail = f"the chat template of {template.origin} names no format of tool calls; they are read as {reader.format}"
    return [Finding("chat template", Level.WARN, detail, "set generator.tool_call_format to what the model writes")]


def check_vocabulary(folder: Path, template: ChatTemplate) -> list[Finding]:
    """Whether the model has an embedding for each id that its tokenizer gives."""
    size = read_description(folder).vocab_size
    if size is None:
        return []
    plain = max(template.tokenizer.get_vocab(with_added_tokens=False).values(), default=0)
    largest = max(template.tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    needed = max(plain, *template.stop_ids)
    detail = f"{SETTING}: the tokenizer in {folder} gives ids up to {max(needed, largest)}, the model has {size}"
    if needed >= size:
        return [Finding("vocabulary", Level.FAIL, detail, "the tokenizer is another model's: give the model its own")]
    if largest >= size:
        return [Finding("vocabulary", Level.WARN, detail, "texts with the added tokens beyond it cannot be used")]
    return [Finding("vocabulary", Level.PASS, f"{largest + 1} token ids, {size} embeddings")]


def check_weights(folder: Path) -> list[Finding]:
    """Whether the weights are those that `config.json` describes: embedding and number of layers."""
    shapes = weight_shapes(folder)
    described = read_description(folder)
    if not shapes:
        return []
    wrong = []
    embedding = next((shape for name, shape in shapes.items() if _EMBEDDING.match(name)), None)
    expected = [described.vocab_size, described.hidden_size]
    if embedding is not None and None not in expected and embedding != expected:
        wrong.append(f"an embedding of {embedding[0]} × {embedding[-1]}, described as {expected[0]} × {expected[1]}")
    layers = {int(match[1]) for name in shapes if (match := _LAYER.match(name))}
    if layers and described.layers is not None and len(layers) < described.layers:
        wrong.append(f"{len(layers)} layers, described as {described.layers}")
    if wrong:
        detail = f"{SETTING}: the weights in {folder} are not those of its config.json: {' and '.join(wrong)}"
        return [Finding("weights", Level.FAIL, detail, "this is a checkpoint of another model: give a whole folder")]
    return [Finding("weights", Level.PASS, f"{len(shapes)} tensors, as config.json describes them")]


def weight_shapes(folder: Path) -> dict[str, list[int]]:
    """Shapes by tensor name from the headers of all safetensors files; those of a file that cannot be read are left
    out."""
    shapes: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*.safetensors")):
        try:
            with path.open("rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(length)) if length <= MAX_HEADER_BYTES else {}
            shapes |= {name: list(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, struct.error):
            continue
    return shapes
