"""Which local folders a job may load its model from.

Hub ids are free. A folder of the service's machine must lie, links resolved, under one of the `model_dirs` of the
settings; where none are set, admins may name any folder and users none, so that a token for a job is not a way to
read the machine.
"""

from collections.abc import Sequence
from pathlib import Path

from drydock.service.identity import Identity, Role
from drydock.service.problems import Refusal


def check_place(model_name: str, where: str, model_dirs: Sequence[Path], identity: Identity) -> None:
    """Raises Refusal 403, naming the field at `where`, for a folder that this caller may not use."""
    if not model_dirs and identity.role is Role.ADMIN:
        return
    try:
        path = Path(model_name).expanduser()
        local = path.is_absolute() or model_name.startswith((".", "~")) or model_name.count("/") > 1 or path.exists()
        resolved = path.resolve() if local else None
    except (OSError, ValueError, RuntimeError):
        return
    if resolved is None or any(resolved.is_relative_to(folder) for folder in model_dirs):
        return
    allowed = ", ".join(map(str, model_dirs)) or "none: only admins may, or set model_dirs"
    raise Refusal(
        403,
        f"{where}: the folder {model_name[:200]!r} may not be used; local models must lie in a folder of the "
        f"service's model_dirs ({allowed})",
    )
