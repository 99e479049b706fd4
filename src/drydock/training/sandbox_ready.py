"""Whether the sandboxes that a configuration names can work on this machine, before any is started."""

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

from drydock.errors import SandboxUnavailable, TaskError
from drydock.rollout.environment_ready import check_environment
from drydock.rollout.settings import SANDBOXES
from drydock.sandbox.images import check_definition
from drydock.sandbox.locations import default_cache_dir, sandboxes_in
from drydock.sandbox.reaper import reap
from drydock.sandbox.requirements import check_local
from drydock.training.rollout_config import SandboxConfig

_SHOWN = 10


def check_sandbox(sandbox: SandboxConfig, state_dir: Path, note: Callable[[str], None]) -> None:
    """Remove what a killed driver left. Raises SandboxUnavailable, naming every remedy, when sandboxes cannot work."""
    if sandbox.environment not in SANDBOXES:
        check_environment(sandbox.environment, dict(sandbox.kwargs))
        return
    requirements = check_local(_cache_dir(sandbox))
    missing = [requirement for requirement in requirements if not requirement.ok]
    if missing and sandbox.environment == "local":
        reasons = "; ".join(
            f"{requirement.name}: {requirement.detail}, remedy: {requirement.remedy}" for requirement in missing
        )
        raise SandboxUnavailable(
            f"the local sandbox cannot work on this machine: {reasons}. For tasks that you trust, run them on this "
            "machine itself: HARBOR_ALLOW_HOST_EXEC=1 and sandbox.environment=host"
        )
    for leftover in reap(sandboxes_in(state_dir), _cache_dir(sandbox)):
        note(f"removed what a killed run left: {leftover}")


def check_environments(sandbox: SandboxConfig, folders: Sequence[Path]) -> None:
    """Raise TaskError, naming file, line and reason, for tasks of which a local sandbox cannot be made."""
    if sandbox.environment != "local":
        return
    given = sandbox.kwargs.get("base_images")
    images = {str(pattern): str(system) for pattern, system in given.items()} if isinstance(given, dict) else {}
    refusals = []
    for folder in folders:
        environment = tomllib.loads((folder / "task.toml").read_text()).get("environment", {})
        for place in (folder / "environment", *(file.parent for file in folder.glob("**/tests/Dockerfile"))):
            refusal = check_definition(place, environment.get("docker_image"), images, _cache_dir(sandbox))
            if refusal is not None:
                refusals.append(str(refusal))
    if refusals:
        more = f"\nand {len(refusals) - _SHOWN} more" if len(refusals) > _SHOWN else ""
        raise TaskError("\n".join(refusals[:_SHOWN]) + more)


def _cache_dir(sandbox: SandboxConfig) -> Path:
    given = sandbox.kwargs.get("cache_dir")
    return Path(str(given)) if given else default_cache_dir()


def environment_kwargs(sandbox: SandboxConfig, state_dir: Path) -> dict[str, object]:
    """The environment's keyword arguments, with the place of its records where it is one of Drydock's."""
    kwargs = dict(sandbox.kwargs)
    if sandbox.environment in SANDBOXES:
        kwargs.setdefault("state_dir", str(sandboxes_in(state_dir)))
    return kwargs
