"""A few steps of the demo's model, short enough for tests of what the diagnosis says of them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builders.demo_run import build_demo_run
from builders.driver import driver

SHORT = (
    "warm_start=[]",
    "trainer.eval_before_train=false",
    "trainer.eval_after_train=false",
    "trainer.save_final_checkpoint=false",
    "data.shuffle=false",
)
"""Steps alone, in the order of the tasks' names; the policy is the model's random first weights."""


END_S = 170
"""How long a run may take on a machine that is busy with other things."""


@dataclass(frozen=True)
class DiagnosedRun:
    """What a finished `drydock train` left: its folder, exit code and output."""

    folder: Path
    code: int
    output: str

    @property
    def steps(self) -> list[dict[str, Any]]:
        """The lines of metrics.jsonl."""
        return _lines(self.folder / "metrics.jsonl")

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The lines of diagnosis.jsonl."""
        return _lines(self.folder / "diagnosis.jsonl")

    def of(self, check: str) -> list[dict[str, Any]]:
        """The findings of one check."""
        return [finding for finding in self.findings if finding["check"] == check]


def demo_run(
    folder: Path,
    *settings: str,
    verifiers: Sequence[str],
    environment: Mapping[str, str] | None = None,
) -> DiagnosedRun:
    """Run the miniature of the demo in `folder` to its end; there is one training task for each of `verifiers`."""
    config = build_demo_run(folder / "data", train_tasks=len(verifiers))
    for task, verifier in zip(sorted((folder / "data" / "train").iterdir()), verifiers, strict=True):
        (task / "tests" / "test.sh").write_text(verifier)
    run, state = folder / "run", folder / "state"
    own = (f"sandbox.state_dir={state}", f"trainer.ckpt_path={run}")
    with driver(["train", str(config), *own, *SHORT, *settings], state, folder, environment) as running:
        code = running.end(timeout_s=END_S)
    return DiagnosedRun(run, code, running.output)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
