"""From a task's environment directory to the root file systems and layers that its sandbox stands on.

Everything that can be refused without building anything is refused here: instructions that cannot be replayed, images
without a root file system, files to copy that are missing. `check_definition` does that alone, for a run's tasks before
the run starts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from drydock.errors import TaskError
from drydock.sandbox.base_images import base_directory, known_images
from drydock.sandbox.dockerfile import read_dockerfile
from drydock.sandbox.dockerfile_plan import Plan, Run
from drydock.sandbox.layers import LayerPlan, plan_layers
from drydock.sandbox.rootfs import rootfs_path

SCRATCH = "scratch"


@dataclass(frozen=True, slots=True)
class Definition:
    """What a sandbox is made of: layers of a Dockerfile on a root file system, or a root file system alone."""

    system: Path
    layers: LayerPlan | None

    @property
    def plan(self) -> Plan | None:
        return self.layers.plan if self.layers else None


def read_definition(
    environment_dir: Path, docker_image: str | None, base_images: Mapping[str, str], cache_dir: Path
) -> Definition:
    """Read a task's Dockerfile, or its `docker_image` where it has none; TaskError names file, line and reason."""
    file = environment_dir / "Dockerfile"
    if not file.exists():
        system = _base(docker_image or "", f"task of {environment_dir}", base_images, cache_dir)
        return Definition(system, None)
    plan = read_dockerfile(file)
    bases = {
        image: _base(image, f"{file}:{line}", base_images, cache_dir, may_be_empty=True)
        for image, line in plan.images()
    }
    layers = plan_layers(plan, bases)
    _, system = layers.result()
    _check_scratch(plan)
    return Definition(system, layers)


def check_definition(
    environment_dir: Path, docker_image: str | None, base_images: Mapping[str, str], cache_dir: Path
) -> TaskError | None:
    """Why a sandbox of this task cannot be made, None when nothing speaks against it. Builds nothing."""
    try:
        read_definition(environment_dir, docker_image, base_images, cache_dir)
    except TaskError as error:
        return error
    return None


def _base(
    image: str, where: str, base_images: Mapping[str, str], cache_dir: Path, *, may_be_empty: bool = False
) -> Path:
    images = cache_dir / "images"
    if image == SCRATCH and may_be_empty:
        empty = cache_dir / "empty"
        empty.mkdir(parents=True, exist_ok=True)
        return empty
    found = base_directory(image, base_images, rootfs_path(cache_dir), images)
    if found is None:
        raise TaskError(
            f"{where}: there is no root file system for the image {image}; known are "
            f"{', '.join(known_images(base_images, images))}. Add one with the sandbox option base_images or with "
            f"`drydock sandbox build --tarball FILE --image {image}`"
        )
    if not found.is_dir():
        raise TaskError(f"{where}: the root file system for {image}, {found}, does not exist")
    return found


def _check_scratch(plan: Plan) -> None:
    """Refuse to run programs where there are none."""
    empty: set[int] = set()
    for number in plan.needed():
        stage = plan.stages[number]
        if stage.base == SCRATCH or stage.base in empty:
            empty.add(number)
            for step in stage.steps:
                if isinstance(step, Run):
                    raise TaskError(f"{plan.file}:{step.line}: RUN in a stage FROM scratch, which has no programs")
    if len(plan.stages) - 1 in empty:
        raise TaskError(f"{plan.file}:{plan.result.line}: a sandbox FROM scratch has no shell; copy from it instead")
