"""The GPUs that workers of this service could use, found without loading any GPU library.

A GPU is named by its place among those that the service sees: all of the machine's, or what its own
CUDA_VISIBLE_DEVICES leaves. `cuda_visible` turns places into the value that a worker is started with.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

OTHER = "GPU"
"""Type of a GPU whose name holds none of the known ones."""
QUERY_TIMEOUT_S = 20.0

_TYPE = re.compile(r"\b(GB\d{3}|[ABHLV]\d{2,3}S?|T4)\b")


def gpu_types() -> list[str]:
    """Hardware type of each GPU that the service sees (`H200`, `B200`, …), by its place; empty without any."""
    names = _names()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return [gpu_type(name) for name in names]
    chosen = [part.strip() for part in visible.split(",") if part.strip() not in ("", "-1")]
    return [
        gpu_type(names[int(part)] if part.isdigit() and int(part) < len(names) else names[0] if names else "")
        for part in chosen
    ]


def gpu_type(name: str) -> str:
    """`NVIDIA H200` is `H200`; a name without a known type is `GPU`."""
    found = _TYPE.search(name)
    return found[1] if found else OTHER


def cuda_visible(devices: Sequence[int], inherited: str | None) -> str:
    """CUDA_VISIBLE_DEVICES of a worker that gets these places, under the service's own value of it."""
    names = [part.strip() for part in (inherited or "").split(",") if part.strip()]
    return ",".join(names[device] if device < len(names) else str(device) for device in devices)


def _names() -> list[str]:
    """The machine's GPUs in PCI order: by the driver's tool, else by its files, else one a device file."""
    files = [path for path in Path("/dev").glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdigit()]
    if not files:
        return []
    try:
        query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
        listed = subprocess.run(query, capture_output=True, text=True, timeout=QUERY_TIMEOUT_S, check=True).stdout
        return [line.strip() for line in listed.splitlines() if line.strip()]
    except (OSError, subprocess.SubprocessError):
        pages = sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
        models = [found[1] for page in pages if (found := re.search(r"Model:\s*(.+)", page.read_text()))]
        return models if len(models) == len(files) else [""] * len(files)
