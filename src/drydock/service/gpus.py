"""The GPUs that workers of this service could use, without loading any GPU library."""

import os
from pathlib import Path


def visible_gpus() -> int:
    """Number of NVIDIA devices, or of those that CUDA_VISIBLE_DEVICES leaves."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([part for part in visible.split(",") if part.strip() not in ("", "-1")])
    return len([path for path in Path("/dev").glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdigit()])
