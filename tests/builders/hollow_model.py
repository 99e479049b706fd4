"""Model folders that are all description: a configuration and the header of weights that are a hole in the file."""

import json
import struct
from pathlib import Path


def model_folder(folder: Path, parameters: int, **config: object) -> Path:
    """A folder that describes a model of this many parameters; its weights are a hole in the file."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3", "vocab_size": 1000, **config}))
    entry = {"dtype": "BF16", "shape": [parameters // 2, 2], "data_offsets": [0, 2 * parameters]}
    header = json.dumps({"__metadata__": {"format": "pt"}, "w": entry}).encode()
    with (folder / "model-00001-of-00001.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
    return folder
