"""What the command imports: nothing heavy at start, and never torch in a driver."""

import json
import subprocess
import sys
from importlib.metadata import version

import pytest
from typer.testing import CliRunner

from drydock.cli.main import app


def modules_after(statement: str) -> set[str]:
    """Top-level names in sys.modules of a fresh interpreter after `statement`."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{n.split('.')[0] for n in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=110)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_command_starts_without_heavy_imports() -> None:
    loaded = modules_after("import drydock.cli.main")
    assert not loaded & {"torch", "transformers", "openhands", "litellm", "harbor", "fastapi", "matplotlib", "numpy"}


def test_the_monitor_opens_without_heavy_imports() -> None:
    loaded = modules_after("import drydock.cli.monitor, drydock.report.monitor.view, drydock.training.run_folder")
    heavy = {"torch", "transformers", "openhands", "litellm", "harbor", "fastapi", "matplotlib", "numpy", "tokenizers"}
    assert not loaded & {*heavy, "pydantic", "httpx"}


@pytest.mark.parametrize(
    "module", ["drydock.training.launch", "drydock.training.session", "drydock.recipes.shell_tasks.prepare"]
)
def test_a_driver_has_no_torch(module: str) -> None:
    loaded = modules_after(f"import {module}")
    assert not loaded & {"torch", "transformers", "vllm"}


def test_importing_the_package_is_quick() -> None:
    program = (
        "import time; start = time.process_time(); import drydock, drydock.cli.main; print(time.process_time() - start)"
    )
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True) for _ in "123"]
    assert min(float(run.stdout) for run in runs) < 0.3


def test_the_version_is_the_distributions():
    shown = CliRunner().invoke(app, ["--version"])
    assert (shown.exit_code, shown.output) == (0, f"drydock {version('drydock-rl')}\n")
