"""Loading a Hugging Face causal language model, and the few facts about it that the engines need.

Models run in `eval` mode everywhere, training included: dropout would make the trainer's log-probs differ from the
sampler's. `use_cache` is passed with each call and never written into a config, because a saved folder would carry
it into `generation_config.json` and slow every later `generate`.

A model on a CPU owns its weights. As the loader leaves them they are its files, mapped into memory: overwriting a file
in place would change a running model, and truncating it would kill the process. So they are copied once, tensor by
tensor, at the cost of one pass over them; the mapped pages go with the last of them.

A model in bfloat16 or float16 computes its logits in float32 (`widen_head`), in the trainer and in the sampler alike:
rounding a log-prob to 8 bits of mantissa would drown the policy ratios that training is about.
"""

import inspect
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.cache_utils import Cache
from transformers.utils import logging as transformers_logging

from drydock.errors import EngineError, UserError

DTYPES: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "fp32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
    "bf16": torch.bfloat16,
    "float16": torch.float16,
    "fp16": torch.float16,
}


def load_model(name_or_path: str, *, dtype: str | None = None, device: str = "cpu") -> PreTrainedModel:
    """A causal language model from a local folder or the hub, in eval mode. Only safetensors are read.

    dtype: of the parameters; None is float32 on a CPU and bfloat16 on a GPU.
    Raises UserError when the folder or hub model does not exist or is incomplete, EngineError when its weights
    cannot be loaded into its architecture.
    """
    torch_dtype = resolve_dtype(dtype, device)
    _check_folder(name_or_path)
    transformers_logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(name_or_path)
        model = AutoModelForCausalLM.from_pretrained(
            name_or_path, config=config, dtype=torch_dtype, use_safetensors=True
        )
    except (OSError, ValueError) as error:
        raise UserError(f"model {name_or_path!r} cannot be loaded: {_first_line(error)}") from error
    except (RuntimeError, KeyError) as error:
        raise EngineError(f"weights of model {name_or_path!r} do not fit its config: {_first_line(error)}") from error
    if torch.device(device).type == "cpu":
        _own_weights(model)
    nn.Module.to(model, torch.device(device))
    if torch_dtype in (torch.bfloat16, torch.float16):
        widen_head(model)
    return model.eval()


@torch.no_grad()
def _own_weights(model: nn.Module) -> None:
    """Put every weight into memory of its own; a tied one stays one."""
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.data = tensor.data.clone()


def widen_head(model: PreTrainedModel) -> None:
    """Have the output head multiply in float32, its weight kept as it is. Only linear layers are changed."""
    head = model.get_output_embeddings()
    if isinstance(head, nn.Linear):
        head.forward = partial(_float32_linear, head)  # pyright: ignore[reportAttributeAccessIssue]


def _float32_linear(head: nn.Linear, hidden: Tensor) -> Tensor:
    bias = None if head.bias is None else head.bias.float()
    return nn.functional.linear(hidden.float(), head.weight.float(), bias)


def load_tokenizer(name_or_path: str) -> PreTrainedTokenizerBase:
    """The model's tokenizer. Raises UserError when there is none."""
    _check_folder(name_or_path)
    try:
        return AutoTokenizer.from_pretrained(name_or_path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"model {name_or_path!r} has no usable tokenizer (tokenizer.json and tokenizer_config.json): "
            f"{_first_line(error)}"
        ) from error


def resolve_dtype(name: str | None, device: str = "cpu") -> torch.dtype:
    """The torch dtype called `name`; None is bfloat16 on a GPU, else float32. Raises UserError for an unknown name."""
    usual = "bfloat16" if device.startswith("cuda") else "float32"
    dtype = DTYPES.get((name or usual).removeprefix("torch."))
    if dtype is None:
        raise UserError(f"unknown dtype {name!r}; known: {', '.join(DTYPES)}")
    return dtype


def default_device() -> str:
    """The first GPU where there is one, else the CPU."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def cache_argument(model: PreTrainedModel) -> str:
    """Name of the forward argument that takes a KV cache (it changed within transformers 5)."""
    parameters = inspect.signature(model.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"


def max_positions(model: PreTrainedModel) -> int | None:
    """Longest sequence that the model's config allows, or None if it does not say."""
    value = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    return int(value) if value else None


def vocabulary_size(model: PreTrainedModel) -> int:
    """Number of token ids that the model can embed."""
    embeddings = model.get_input_embeddings()
    if not isinstance(embeddings, nn.Embedding):
        raise EngineError(f"input embeddings of {type(model).__name__} are no embedding table")
    return embeddings.num_embeddings


def end_token_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> frozenset[int]:
    """Every id that ends a completion: of the generation config, else of the config, and of the tokenizer."""
    ids: set[int] = set()
    generation = getattr(model, "generation_config", None)
    for value in (getattr(generation, "eos_token_id", None), getattr(model.config, "eos_token_id", None)):
        if value is not None:
            ids.update([value] if isinstance(value, int) else value)
            break
    if tokenizer is not None and isinstance(tokenizer.eos_token_id, int):
        ids.add(tokenizer.eos_token_id)
    return frozenset(ids)


class ModelCall:
    """Forward passes of one model with the logits of chosen positions only.

    Logits are by far the largest activation where the vocabulary is large; a model that can leave out positions
    (`logits_to_keep`) is asked to, any other computes all and the choice is made afterwards.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self._cache_argument = cache_argument(model)
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters
        self._keeps_mask = self._keeps and self._probe_mask()

    def all_logits(self, input_ids: Tensor, cache: Cache | None = None, *, last: int = 0) -> Tensor:
        """Logits [rows, last, vocab] of the last positions (0: of all)."""
        arguments = self._arguments(input_ids, cache)
        if self._keeps:
            return self.model(**arguments, logits_to_keep=last).logits
        return self.model(**arguments).logits[:, -last if last else 0 :]

    def logits_at(self, input_ids: Tensor, keep: Tensor, cache: Cache | None = None) -> Tensor:
        """Logits [number of kept, vocab] where `keep` (bool [rows, seq]) is true, in row-major order."""
        arguments = self._arguments(input_ids, cache)
        if self._keeps_mask:
            return self.model(**arguments, logits_to_keep=keep).logits
        return self.model(**arguments).logits[keep]

    def _arguments(self, input_ids: Tensor, cache: Cache | None) -> dict[str, Any]:
        arguments: dict[str, Any] = {"input_ids": input_ids, "use_cache": cache is not None}
        if cache is not None:
            arguments[self._cache_argument] = cache
        return arguments

    @torch.no_grad()
    def _probe_mask(self) -> bool:
        device = self.model.device
        keep = torch.tensor([[True, False, True]], device=device)
        try:
            logits = self.model(
                input_ids=torch.zeros(1, 3, dtype=torch.long, device=device), use_cache=False, logits_to_keep=keep
            ).logits
        except (RuntimeError, IndexError, TypeError):
            return False
        return logits.ndim == 2 and logits.shape[0] == 2


def _check_folder(name_or_path: str) -> None:
    path = Path(name_or_path).expanduser()
    looks_local = path.is_absolute() or name_or_path.startswith((".", "~")) or name_or_path.count("/") > 1
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise UserError(f"model folder {path} has no config.json; give a Hugging Face model folder")
    elif looks_local:
        raise UserError(f"model folder {path} does not exist; give a Hugging Face model folder or a hub id")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
