"""The proof, made again from what was written down, that every trained token was sampled under its recorded prompt."""

from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from drydock.errors import UserError
from drydock.proxy.audit import TokenAudit, audit
from drydock.rollout.trajectory import Trajectory


def audit_trajectories(trajectories: Iterable[Trajectory]) -> TokenAudit:
    """Totals over the records of `trajectories`."""
    return sum((audit(trajectory.record) for trajectory in trajectories), TokenAudit())


def audit_run_folder(root: Path) -> TokenAudit:
    """Totals over every trajectory file of a run. Raises UserError naming a file that is none."""
    files = sorted(file for file in (root / "trajectories").glob("step_*/*/*") if file.suffix in (".json", ".error"))
    return audit_trajectories(_read(file) for file in files)


def _read(file: Path) -> Trajectory:
    try:
        return Trajectory.read(file)
    except ValidationError as error:
        raise UserError(f"{file} is not a trajectory file: {error.errors()[0]['msg']}") from None
