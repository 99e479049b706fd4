"""The proof, made again from what was written down, that every trained token was sampled under its recorded prompt."""

from collections.abc import Iterable
from pathlib import Path

from drydock.proxy.audit import TokenAudit, audit
from drydock.rollout.trajectory import Trajectory
from drydock.rollout.trajectory_files import files_of_run, read_trajectory


def audit_trajectories(trajectories: Iterable[Trajectory]) -> TokenAudit:
    """Totals over the records of `trajectories`."""
    return sum((audit(trajectory.record) for trajectory in trajectories), TokenAudit())


def audit_run_folder(root: Path) -> TokenAudit:
    """Totals over every trajectory file of a run. Raises UserError naming a file that is none."""
    return audit_trajectories(read_trajectory(file) for file in files_of_run(root))
