"""Dockerfile layers: built once per content, kept in the cache, shared by every rollout that needs them.

A layer is the upper directory of an overlay. Its name is the hash of the layer below it, of its instructions and of
the bytes they copy, so a change anywhere gives new names from there on and an old layer is never wrong. Neighbouring
COPY and WORKDIR lines make one layer, and that needs no process; each RUN line is a layer. A stage that is copied from
counts by its own topmost layer; where the result is in the cache, no other stage is looked at.
"""

import functools
import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from drydock.errors import TaskError
from drydock.sandbox.build_context import BuildContext
from drydock.sandbox.copying import carry_out
from drydock.sandbox.dockerfile_plan import Copy, MakeDirectory, Plan, Run, Step
from drydock.sandbox.ids import id_range
from drydock.sandbox.layer_store import layer_store
from drydock.sandbox.overlay import Overlay, mount_overlay, on_mount_thread, unmount_overlay
from drydock.sandbox.transfer_pool import in_transfer_pool
from drydock.sandbox.uncancelled import to_its_end

_VERSION = "2"
_VIEW_MB = 1

type RunBuilder = Callable[[Run, tuple[Path, ...], Path], Coroutine[Any, Any, None]]
"""Carries out one RUN: (instruction, layers below it, directory that receives `upper`)."""

type Stack = tuple[Path, ...]
"""Directories to overlay, topmost first."""


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """The layers of every needed stage, bottom first, each with its name and the steps that make it."""

    plan: Plan
    context: BuildContext
    bases: Mapping[str, Path]
    groups: Mapping[int, Sequence[tuple[str, tuple[Step, ...]]]]

    def result(self) -> tuple[list[str], Path]:
        """The names of the result's layers, bottom first, and the root file system below them."""
        names: list[str] = []
        number: str | int = len(self.plan.stages) - 1
        while isinstance(number, int):
            names = [name for name, _ in self.groups[number]] + names
            number = self.plan.stages[number].base
        return names, self.bases[number]


def plan_layers(plan: Plan, bases: Mapping[str, Path]) -> LayerPlan:
    """Name the layers of `plan`; reads every file that is copied, and builds nothing.

    bases: the root file system of each image in `plan.images()`.
    Raises TaskError naming the line of a COPY whose source is missing.
    """
    context = BuildContext.of(plan.file.parent)
    groups: dict[int, list[tuple[str, tuple[Step, ...]]]] = {}
    tops: dict[str | int, str] = {image: f"{_VERSION}:{path.resolve()}" for image, path in bases.items()}
    for number in plan.needed():
        stage = plan.stages[number]
        top = tops[stage.base]
        groups[number] = []
        for group in _one_layer_each(stage.steps):
            top = _name(top, group, plan, context, tops)
            groups[number].append((top, group))
        tops[number] = top
    return LayerPlan(plan, context, bases, groups)


async def ensure_layers(layers: LayerPlan, cache_dir: Path, run_builder: RunBuilder) -> Stack:
    """The directories to stack for the result, built where they are not in the cache and held until `release_layers`.

    Raises TaskError naming the Dockerfile's line when a step fails.
    """
    store = layer_store(cache_dir / "layers")
    names, base = layers.result()
    existing = store.acquire_existing(names)
    if existing is not None:
        return (*reversed(existing), base)
    held: list[Path] = []
    stacks: dict[str | int, Stack] = {image: (path,) for image, path in layers.bases.items()}
    try:
        for number, groups in layers.groups.items():
            stack = stacks[layers.plan.stages[number].base]
            for name, group in groups:
                build = functools.partial(_build, group, stack, layers, stacks, run_builder)
                held.append(await store.acquire(name, build))
                stack = (held[-1], *stack)
            stacks[number] = stack
        result = stacks[len(layers.plan.stages) - 1]
        for layer in result[:-1]:
            held.remove(layer)
        return result
    finally:
        store.release(held)


def release_layers(stack: Stack, cache_dir: Path) -> None:
    """Give a stack of `ensure_layers` back, after which its layers may be pruned."""
    layer_store(cache_dir / "layers").release(stack)


def _one_layer_each(steps: Sequence[Step]) -> list[tuple[Step, ...]]:
    number = itertools.count()
    groups = itertools.groupby(steps, key=lambda step: next(number) if isinstance(step, Run) else -1)
    return [tuple(members) for _, members in groups]


def _name(below: str, group: Sequence[Step], plan: Plan, context: BuildContext, tops: Mapping[str | int, str]) -> str:
    digest = hashlib.sha256(below.encode())
    for step in group:
        data = asdict(step)
        del data["line"]
        if isinstance(step, Copy) and step.stage is not None:
            data["stage"] = tops[step.stage]
        digest.update(json.dumps([type(step).__name__, data], sort_keys=True).encode())
        if isinstance(step, Copy) and step.stage is None:
            for pattern in step.sources:
                for path in context.select(pattern, f"{plan.file}:{step.line}"):
                    digest.update(f"{path}\0{context.fingerprint(path)}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()[:32]


async def _build(
    group: Sequence[Step],
    below: Stack,
    layers: LayerPlan,
    stacks: Mapping[str | int, Stack],
    run_builder: RunBuilder,
    layer: Path,
) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f".{layer.name}.", dir=layer.parent))
    try:
        match group:
            case [Run() as step]:
                await run_builder(step, below, staging)
            case _:
                copies = [step for step in group if isinstance(step, Copy | MakeDirectory)]
                await to_its_end(_copy_layer(staging, copies, below, layers, stacks))
        (staging / "upper").rename(layer)
    finally:
        await in_transfer_pool(shutil.rmtree, staging, True)


async def _copy_layer(
    staging: Path,
    steps: Sequence[Copy | MakeDirectory],
    below: Stack,
    layers: LayerPlan,
    stacks: Mapping[str | int, Stack],
) -> None:
    sources = {step.stage: stacks[step.stage] for step in steps if isinstance(step, Copy) and step.stage is not None}
    mounted: dict[str | int, Overlay] = {}

    def mount() -> Overlay:
        for number, (stage, stack) in enumerate(sources.items()):
            mounted[stage] = mount_overlay(f"{staging.name}.{number}", stack, size_mb=_VIEW_MB)
        return mount_overlay(staging.name, below, size_mb=0, disk=staging)

    def unmount() -> None:
        for overlay in mounted.values():
            unmount_overlay(overlay)

    try:
        overlay = await on_mount_thread(mount)
        try:
            roots = {stage: view.root for stage, view in mounted.items()}
            file = layers.plan.file
            await in_transfer_pool(carry_out, overlay.root, steps, layers.context, file, id_range(), roots)
        except OSError as error:
            raise TaskError(f"{layers.plan.file}:{steps[0].line}: cannot copy: {error}") from error
        finally:
            await on_mount_thread(unmount_overlay, overlay)
    finally:
        await on_mount_thread(unmount)
