"""What is looked at of the machine and of what earlier runs left, for a run or for none; light to import."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from drydock.finding import Finding
from drydock.training.preflight import run_state
from drydock.training.preflight.check import Check, in_thread
from drydock.training.preflight.disk import check_disk
from drydock.training.preflight.ptys import check_ptys
from drydock.training.run_folder import RunFolder

_LIMIT_S = 60.0


def machine_checks(state_dir: Path, folder: RunFolder | None, terminals: int = 1) -> list[Check]:
    """The areas `machine` and `runs`. terminals: pseudo-terminals that may be open at the same time."""
    places: dict[str, Path] = {}
    if folder is not None:  # an earlier run's folder is renamed
        places["trainer.ckpt_path"] = folder.root.parent if folder.config.exists() else folder.root
    places |= {"sandbox.state_dir": state_dir, "TMPDIR": Path(tempfile.gettempdir())}

    def check(area: str, name: str, waiting_for: str, find: Callable[[], list[Finding]]) -> Check:
        return Check(area, name, waiting_for, _LIMIT_S, "see docs/doctor.md", in_thread(find))

    found = [
        check("machine", "ptys", "pseudo-terminals to be counted", lambda: check_ptys(terminals)),
        check("machine", "disk", "free space to be looked up", lambda: check_disk(places)),
        check("runs", "drivers", "other drivers to be looked for", lambda: run_state.check_drivers(state_dir, folder)),
        check("runs", "temporary files", "temporary files to be looked for", run_state.check_temporary_files),
    ]
    if folder is not None:
        found.append(
            check("runs", "run folder", "the run's folder to be looked at", lambda: run_state.check_run_folder(folder))
        )
    return found
