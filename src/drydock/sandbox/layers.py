"""Dockerfile layers: built once per content, kept in the cache, shared by every rollout that needs them.

A layer is the upper directory of an overlay. Its name is the hash of the layer below it, of its instructions and of
the bytes they copy, so a change anywhere gives new names from there on and an old layer is never wrong. A layer
appears in the cache by one rename; a lock per layer makes concurrent rollouts wait for one build instead of building
again. Neighbouring COPY and WORKDIR lines make one layer, and that needs no process; each RUN line is a layer.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import itertools
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from drydock.errors import TaskError
from drydock.sandbox.build_context import BuildContext
from drydock.sandbox.copying import carry_out
from drydock.sandbox.dockerfile import Copy, MakeDirectory, Plan, Run, Step
from drydock.sandbox.overlay import mount_overlay, on_mount_thread, unmount_overlay
from drydock.sandbox.rootfs import ID_BASE
from drydock.sandbox.transfer_pool import in_transfer_pool
from drydock.sandbox.uncancelled import to_its_end

_LOCK_POLL_S = 0.02
_VERSION = "1"

type RunBuilder = Callable[[Run, tuple[Path, ...], Path], Coroutine[Any, Any, None]]
"""Carries out one RUN: (instruction, layers below it, directory that receives `upper`)."""


async def ensure_layers(plan: Plan, base: Path, cache_dir: Path, run_builder: RunBuilder) -> tuple[Path, ...]:
    """The directories to stack for `plan`, topmost first and `base` last, built where they are not in the cache.

    Raises TaskError naming the Dockerfile's line when a step fails.
    """
    store = cache_dir / "layers"
    store.mkdir(parents=True, exist_ok=True)
    context = BuildContext.of(plan.file.parent)
    stack: tuple[Path, ...] = (base,)
    for group, key in await in_transfer_pool(_keyed_groups, plan, context, base):
        layer = store / key
        if not layer.is_dir():
            async with _locked(store / f".{key}.lock"):
                if not layer.is_dir():
                    await in_transfer_pool(_remove_unfinished, layer)
                    await _build(layer, group, stack, plan, context, run_builder)
        stack = (layer, *stack)
    return stack


def _keyed_groups(plan: Plan, context: BuildContext, base: Path) -> list[tuple[tuple[Step, ...], str]]:
    """The steps in groups of one layer each, with the layer's name."""
    result = []
    key = f"{_VERSION}:{base.resolve()}"
    number = itertools.count()
    for _, members in itertools.groupby(plan.steps, key=lambda step: next(number) if isinstance(step, Run) else -1):
        group = tuple(members)
        digest = hashlib.sha256(key.encode())
        for step in group:
            data = asdict(step)
            del data["line"]
            digest.update(json.dumps([type(step).__name__, data], sort_keys=True).encode())
            if isinstance(step, Copy):
                for pattern in step.sources:
                    for path in context.select(pattern, f"{plan.file}:{step.line}"):
                        digest.update(f"{path}\0{context.fingerprint(path)}\n".encode("utf-8", "surrogateescape"))
        key = digest.hexdigest()[:32]
        result.append((group, key))
    return result


async def _build(
    layer: Path,
    group: Sequence[Step],
    below: tuple[Path, ...],
    plan: Plan,
    context: BuildContext,
    run_builder: RunBuilder,
) -> None:
    staging = Path(tempfile.mkdtemp(prefix=f".{layer.name}.", dir=layer.parent))
    try:
        match group:
            case [Run() as step]:
                await run_builder(step, below, staging)
            case _:
                copies = [step for step in group if isinstance(step, Copy | MakeDirectory)]
                await to_its_end(_copy_layer(staging, copies, below, plan, context))
        (staging / "upper").rename(layer)
    finally:
        await in_transfer_pool(shutil.rmtree, staging, True)


async def _copy_layer(
    staging: Path, steps: Sequence[Copy | MakeDirectory], below: tuple[Path, ...], plan: Plan, context: BuildContext
) -> None:
    def mount() -> Any:
        return mount_overlay(staging.name, below, size_mb=0, disk=staging)

    overlay = await on_mount_thread(mount)
    try:
        await in_transfer_pool(carry_out, overlay.root, steps, context, plan.file, ID_BASE)
    except OSError as error:
        raise TaskError(f"{plan.file}:{steps[0].line}: cannot copy: {error}") from error
    finally:
        await on_mount_thread(unmount_overlay, overlay)


@contextlib.asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(_LOCK_POLL_S)
        yield


def _remove_unfinished(layer: Path) -> None:
    """Delete what a killed driver left of its build of `layer`; the caller holds the layer's lock."""
    for staging in layer.parent.glob(f".{layer.name}.*"):
        if staging.is_dir():
            shutil.rmtree(staging, ignore_errors=True)
