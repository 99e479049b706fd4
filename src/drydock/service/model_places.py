"""Which local folders a job may load its model and adapters from.

Hub ids are free. A folder of the service's machine must lie, links resolved, under one of the `model_dirs` of the
settings; where none are set, admins may name any folder and users none, so that a token for a job is not a way to
read the machine. Names of folders become absolute, so that a service that is started again from another working
directory finds the same model.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drydock.service.identity import Identity, Role
from drydock.service.model_facts import names_folder
from drydock.service.problems import Refusal


def placed(body: dict[str, Any], model_dirs: Sequence[Path], identity: Identity) -> dict[str, Any]:
    """A valid creation body with its local folders absolute. Raises Refusal 403, naming the field."""
    configs = []
    for index, config in enumerate(body["sub_job_configs"]):
        where = f"sub_job_configs.{index}"
        model = _place(config["model_name"], f"{where}.model_name", model_dirs, identity)
        configs.append({**config, "model_name": model})
        inference = config.get("inference_config") or {}
        found: dict[str, Any] = {}
        if isinstance(adapters := inference.get("adapters"), dict):
            found["adapters"] = {
                name: _place(folder, f"{where}.inference_config.adapters.{name}", model_dirs, identity, local=True)
                for name, folder in adapters.items()
            }
        if (folder := inference.get("policy_adapter")) is not None:
            there = f"{where}.inference_config.policy_adapter"
            found["policy_adapter"] = _place(folder, there, model_dirs, identity, local=True)
        if found:
            configs[-1]["inference_config"] = {**inference, **found}
    return {**body, "sub_job_configs": configs}


def _place(name: Any, where: str, model_dirs: Sequence[Path], identity: Identity, *, local: bool = False) -> Any:
    """The absolute folder, or the name as it is where it means none. local: it can be nothing but a folder."""
    if not isinstance(name, str):
        return name
    try:
        path = Path(name).expanduser()
        local = local or names_folder(name) or path.is_dir()
        resolved = path.resolve() if local else None
    except (OSError, ValueError, RuntimeError):
        return name
    if resolved is None:
        return name
    anywhere = not model_dirs and identity.role is Role.ADMIN
    if anywhere or any(resolved.is_relative_to(folder) for folder in model_dirs):
        return str(path.absolute())
    allowed = ", ".join(map(str, model_dirs)) or "none: only admins may, or set model_dirs"
    raise Refusal(
        403,
        f"{where}: the folder {name[:200]!r} may not be used; local models must lie in a folder of the "
        f"service's model_dirs ({allowed})",
    )
