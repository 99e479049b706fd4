"""The proof, made again from what was written down, that every trained token was sampled under its recorded prompt."""

from collections.abc import Iterable
from pathlib import Path

from drydock.proxy.audit import TokenAudit, audit
from drydock.rollout.trajectory import Trajectory


def audit_trajectories(trajectories: Iterable[Trajectory]) -> TokenAudit:
    """Totals over the records of `trajectories`."""
    return sum((audit(trajectory.record) for trajectory in trajectories), TokenAudit())


def audit_run_folder(root: Path) -> TokenAudit:
    """Totals over every trajectory file of a run."""
    files = sorted(file for file in (root / "trajectories").glob("step_*/*/*") if file.suffix in (".json", ".error"))
    return audit_trajectories(Trajectory.read(file) for file in files)
