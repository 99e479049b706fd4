"""The checkpoint that a sub-job starts from (`source_checkpoint_info`), as its worker finds it.

Checkpoints of all jobs stand beside each other, `<jobs>/<job>/checkpoints/<id>`. The service has looked both ids up
before the job was created, so that no name of a caller's choosing becomes a path here.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

STATE = "trainer_state.json"
ADAPTER = "adapter_config.json"


def source_folder(jobs_dir: Path, config: Mapping[str, Any]) -> Path | None:
    """The folder of a sub-job's source checkpoint, None without one."""
    source = config.get("source_checkpoint_info")
    return jobs_dir / source["source_job_id"] / "checkpoints" / source["checkpoint_id"] if source else None


def holds_adapter(folder: Path) -> bool:
    """Whether a checkpoint holds an adapter in place of whole weights."""
    return (folder / ADAPTER).is_file()


def global_steps(folder: Path) -> int:
    """Optimizer steps that the weights of a checkpoint have had."""
    return int(json.loads((folder / STATE).read_text())["global_steps"])
