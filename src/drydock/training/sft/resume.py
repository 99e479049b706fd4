"""Where a supervised run could go on, kept in its folder, and whether another configuration may go on from there."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from drydock.atomic import replace_file
from drydock.errors import ConfigError
from drydock.training.config_difference import refuse_another_run
from drydock.training.config_file import load_config
from drydock.training.sft.config import SftConfig

FREE = (
    "run_name",
    "ckpt_path",
    "max_training_steps",
    "epochs",
    "eval_before_train",
    "eval_after_train",
    "eval_interval",
    "ckpt_interval",
    "max_ckpts_to_keep",
    "save_final_checkpoint",
    "resume_mode",
)
"""Keys of `trainer` that may be others when a run is resumed; `data.eval`, `service` and `deadlines` may be, too."""


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """A resumable checkpoint on the service: its job and id, the step before it, a mark of the training rows."""

    job_id: str
    checkpoint_id: str
    step: int
    data: str

    @classmethod
    def read(cls, file: Path) -> Self | None:
        """What the file says, None without a file. Raises ConfigError for a damaged one."""
        try:
            return cls(**json.loads(file.read_text()))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"trainer.resume_mode: {file} is damaged ({error}); start anew without it") from None

    def write(self, file: Path) -> None:
        """Put it in the place of an earlier one, whole or not at all."""
        with replace_file(file) as temporary:
            temporary.write_text(json.dumps(asdict(self)) + "\n")


def check_same_run(before: Path, config: SftConfig) -> None:
    """Raise ConfigError, naming the keys, when the run whose configuration is in `before` would train otherwise.

    The number of steps may change where the learning rate does not depend on it.
    """
    refuse_another_run(before.parent, _identity(load_config(SftConfig, before)), _identity(config))


def _identity(config: SftConfig) -> dict[str, Any]:
    """What decides the weights of a step."""
    tree = config.model_dump(mode="json", exclude={"service", "deadlines"})
    trainer, data = tree["trainer"], tree["data"]
    scheduled = trainer["policy"]["optimizer_config"]["scheduler"] != "constant"
    kept = {key: value for key, value in trainer.items() if key not in FREE}
    if scheduled:
        kept |= {key: trainer[key] for key in ("max_training_steps", "epochs")}
    del data["eval"], data["train"]
    return {"trainer": kept, "data": data}
