"""What a Dockerfile says, as data: stages, each a base and the steps on it."""

from dataclasses import dataclass, field
from pathlib import Path

SHELL = ("/bin/sh", "-c")
"""What runs a RUN line until a SHELL says otherwise."""


@dataclass(frozen=True, slots=True)
class Run:
    """RUN: a command line with the environment, user and directory it has at this point.

    emptied: directories that are empty while it runs, and whose content is dropped (--mount of type cache or tmpfs).
    offline: it runs without network whatever the run allows.
    """

    line: int
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    user: str
    workdir: str
    emptied: tuple[str, ...] = ()
    offline: bool = False


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY or ADD: patterns below the build context, an absolute target ("/" at its end: a directory).

    mode: octal or symbolic as in chmod(1), "" to keep each file's own.
    stage: the stage (number) or image (name) that is copied from instead of the build context.
    texts: files given as here-documents, (name, content).
    unpack: archives among the sources are unpacked.
    """

    line: int
    sources: tuple[str, ...]
    target: str
    owner: str = ""
    mode: str = ""
    stage: str | int | None = None
    texts: tuple[tuple[str, str], ...] = ()
    unpack: bool = False


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """WORKDIR: the directory must exist."""

    line: int
    path: str


type Step = Run | Copy | MakeDirectory


@dataclass(frozen=True, slots=True)
class Stage:
    """One FROM and what follows it; env, user, workdir and arguments (ARG) are as they stand at its end.

    base: the name of an image, or the number of an earlier stage, whose settings are already part of this one's.
    """

    name: str
    base: str | int
    line: int
    steps: tuple[Step, ...]
    env: dict[str, str]
    user: str
    workdir: str
    shell: tuple[str, ...] = SHELL
    arguments: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """What a Dockerfile builds: its stages in order, of which the last is the result."""

    file: Path
    stages: tuple[Stage, ...]

    @property
    def result(self) -> Stage:
        return self.stages[-1]

    def needed(self) -> list[int]:
        """The numbers of the stages that the result stands on or copies from, in order, the result's own last."""
        found: set[int] = set()
        pending = [len(self.stages) - 1]
        while pending:
            number = pending.pop()
            if number in found:
                continue
            found.add(number)
            stage = self.stages[number]
            references = [stage.base, *(step.stage for step in stage.steps if isinstance(step, Copy))]
            pending += [reference for reference in references if isinstance(reference, int)]
        return sorted(found)

    def images(self) -> list[tuple[str, int]]:
        """Every image that the needed stages start from or copy from, with the line that names it."""
        found: list[tuple[str, int]] = []
        for number in self.needed():
            stage = self.stages[number]
            if isinstance(stage.base, str):
                found.append((stage.base, stage.line))
            found += [(s.stage, s.line) for s in stage.steps if isinstance(s, Copy) and isinstance(s.stage, str)]
        return found
