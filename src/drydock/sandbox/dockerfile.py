"""Reading a Dockerfile into a plan that can be replayed without Docker.

Understood: several stages, ARG, ENV, WORKDIR, USER, SHELL, RUN (shell and exec form, here-documents, mounts of type
cache and tmpfs), COPY and ADD of local files, of here-documents and from other stages, with --chown and --chmod;
archives in ADD. Without effect here: CMD, ENTRYPOINT, EXPOSE, HEALTHCHECK, LABEL, MAINTAINER, STOPSIGNAL, VOLUME (a
sandbox runs commands only when asked to). Everything else is refused with file, line and reason, before anything is
built.
"""

import json
import platform
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from drydock.errors import TaskError
from drydock.sandbox.dockerfile_plan import Copy, MakeDirectory, Plan, Run, Stage, Step
from drydock.sandbox.dockerfile_text import DockerfileText, Instruction, split_dockerfile, without_heredocs
from drydock.sandbox.dockerfile_words import NotUnderstood, replaced, word, words
from drydock.sandbox.file_modes import is_mode

_WITHOUT_EFFECT = {"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"}
_SHEBANG_RUNNER = (
    'file=$(mktemp) && printf %s "$1" > "$file" && chmod 755 "$file" && "$file"; status=$?; rm -f "$file"; exit $status'
)
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def read_dockerfile(file: Path) -> Plan:
    """The plan of a Dockerfile. Raises TaskError naming file, line and reason for what is not understood."""
    return _Reader(file, split_dockerfile(file)).read()


def _platform_arguments() -> dict[str, str]:
    """The arguments that Docker sets by itself, for this machine."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    return {
        f"{side}{name}": value
        for side in ("TARGET", "BUILD")
        for name, value in (
            ("PLATFORM", f"linux/{architecture}"),
            ("OS", "linux"),
            ("ARCH", architecture),
            ("VARIANT", ""),
        )
    }


@dataclass(slots=True)
class _Building:
    """The stage that is being read."""

    name: str
    base: str | int
    line: int
    env: dict[str, str]
    user: str
    workdir: str
    shell: tuple[str, ...]
    arguments: dict[str, str] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)

    def finished(self) -> Stage:
        return Stage(
            self.name,
            self.base,
            self.line,
            tuple(self.steps),
            self.env,
            self.user,
            self.workdir,
            shell=self.shell,
            arguments=self.arguments,
        )


class _Reader:
    def __init__(self, file: Path, text: DockerfileText) -> None:
        self.file = file
        self.text = text
        self.line = 1
        self.global_arguments = _platform_arguments()
        self.stages: list[Stage] = []
        self.building: _Building | None = None

    def read(self) -> Plan:
        for instruction in self.text.instructions:
            self.line = instruction.line
            try:
                self.take(instruction)
            except NotUnderstood as error:
                raise self.refuse(f"{instruction.name}: {error}") from None
        if self.building is None:
            raise self.refuse("there is no FROM")
        return Plan(self.file, (*self.stages, self.building.finished()))

    def take(self, instruction: Instruction) -> None:
        name, value = instruction.name, instruction.value
        if name == "FROM":
            self.take_from(value)
            return
        if self.building is None:
            if name != "ARG":
                raise self.refuse(f"{name} before FROM")
            for argument, default in self.pairs(value, bare=True).items():
                self.global_arguments[argument] = default or self.global_arguments.get(argument, "")
            return
        stage = self.building
        match name:
            case "ARG":
                for argument, default in self.pairs(value, bare=True).items():
                    if default is None:
                        default = self.global_arguments.get(argument)
                    if default is not None:
                        stage.arguments[argument] = default
            case "ENV":
                stage.env = {**stage.env, **{key: text or "" for key, text in self.pairs(value).items()}}
            case "WORKDIR":
                stage.workdir = str(PurePosixPath(stage.workdir) / self.word(value))
                stage.steps.append(MakeDirectory(self.line, stage.workdir))
            case "USER":
                stage.user = self.word(value)
            case "SHELL":
                stage.shell = tuple(_json_words(value) or ())
                if not stage.shell:
                    raise self.refuse("SHELL needs a JSON list")
            case "RUN":
                stage.steps.append(self.run(instruction, stage))
            case "COPY" | "ADD":
                stage.steps.append(self.copy(instruction, stage))
            case _ if name not in _WITHOUT_EFFECT:
                raise self.refuse(f"{name} is not supported")

    def take_from(self, value: str) -> None:
        if self.building is not None:
            self.stages.append(self.building.finished())
        flags, rest = _flags(value)
        found = words(rest, self.global_arguments, self.text.escape)
        named = len(found) == 3 and found[1].upper() == "AS"
        if not (len(found) == 1 or named) or not found[0] or set(flags) - {"platform"}:
            raise self.refuse(f"FROM {value} is not understood")
        base = self.stage_number(found[0], numbers=False)
        below = self.stages[base] if isinstance(base, int) else Stage("", "", 0, (), {}, "", "/")
        name = found[2].lower() if named else str(len(self.stages))
        self.building = _Building(
            name, base, self.line, dict(below.env), below.user, below.workdir, below.shell, dict(below.arguments)
        )

    def stage_number(self, name: str, *, numbers: bool) -> str | int:
        """The earlier stage that `name` means, or `name` itself: an image."""
        if numbers and name.isdecimal():
            if int(name) >= len(self.stages):
                raise self.refuse(f"there is no earlier stage {name}")
            return int(name)
        for number, stage in reversed(list(enumerate(self.stages))):
            if stage.name == name.lower() and not stage.name.isdecimal():
                return number
        return name

    def run(self, instruction: Instruction, stage: _Building) -> Run:
        flags, command = _flags(instruction.value)
        emptied: list[str] = []
        for name, values in flags.items():
            if name == "mount":
                emptied += [self.emptied_directory(text, stage) for text in values]
            elif name != "network" or values[-1] not in ("default", "none"):
                raise self.refuse(f"RUN --{name}={values[-1]} is not supported")
        env = {**stage.arguments, **stage.env}
        argv = self.command(command, instruction, stage.shell)
        if not argv or not argv[-1]:
            raise self.refuse("RUN without a command")
        offline = flags.get("network", ["default"])[-1] == "none"
        return Run(self.line, argv, tuple(env.items()), stage.user, stage.workdir, tuple(emptied), offline)

    def command(self, command: str, instruction: Instruction, shell: tuple[str, ...]) -> tuple[str, ...]:
        if not instruction.heredocs:
            return tuple(_json_words(command) or ((*shell, command) if command else ()))
        if without_heredocs(command):
            return (*shell, "\n".join([command, "".join(heredoc.source for heredoc in instruction.heredocs)]))
        script = "".join(heredoc.text for heredoc in instruction.heredocs)
        if script.startswith("#!"):
            return ("/bin/sh", "-c", _SHEBANG_RUNNER, "sh", script)
        return (*shell, script)

    def emptied_directory(self, text: str, stage: _Building) -> str:
        """The directory of a --mount, which is empty while the line runs and dropped afterwards."""
        options = {name: value for name, _, value in (part.partition("=") for part in text.split(","))}
        kind = options.get("type", "bind")
        if kind not in ("cache", "tmpfs"):
            raise self.refuse(f"RUN --mount of type {kind} is not supported; COPY what the command needs")
        target = options.get("target") or options.get("dst") or options.get("destination")
        if not target:
            raise self.refuse("RUN --mount needs a target")
        return str(PurePosixPath(stage.workdir) / word(target, self.values(), self.text.escape))

    def copy(self, instruction: Instruction, stage: _Building) -> Copy:
        name = instruction.name
        flags, rest = _flags(instruction.value)
        unknown = set(flags) - {"chown", "chmod", "link", *(("from",) if name == "COPY" else ())}
        if unknown:
            raise self.refuse(f"{name} --{min(unknown)} is not supported")
        rest = without_heredocs(rest) if instruction.heredocs else rest
        listed = _json_words(rest)
        found = [self.word(item) for item in listed] if listed else self.words(rest)
        if len(found) + len(instruction.heredocs) < 2 or not found:
            raise self.refuse(f"{name} needs a source and a target")
        *sources, target = found
        for source in sources:
            self.check_source(name, source, from_stage="from" in flags)
        if len(sources) + len(instruction.heredocs) > 1 and not target.endswith("/"):
            raise self.refuse("with several sources the target must end with /")
        mode = self.word(flags.get("chmod", [""])[-1])
        if mode and not is_mode(mode):
            raise self.refuse(f"--chmod={mode} is no mode")
        absolute = str(PurePosixPath(stage.workdir) / target)
        if target.endswith(("/", "/.")) or target == ".":
            absolute = absolute.rstrip("/") + "/"
        return Copy(
            self.line,
            tuple(sources),
            absolute,
            self.word(flags.get("chown", [""])[-1]),
            mode,
            stage=self.stage_number(self.word(flags["from"][-1]), numbers=True) if "from" in flags else None,
            texts=tuple(
                (doc.name, doc.text if doc.quoted else replaced(doc.text, self.values(), self.text.escape))
                for doc in instruction.heredocs
            ),
            unpack=name == "ADD",
        )

    def check_source(self, name: str, source: str, *, from_stage: bool) -> None:
        if name == "ADD" and ("://" in source or source.startswith("git@")):
            raise self.refuse("ADD of an address is not supported; COPY a file of the task")
        if ".." in PurePosixPath(source).parts and not from_stage:
            raise self.refuse(f"{source} is outside the build context")

    def pairs(self, value: str, *, bare: bool = False) -> dict[str, str | None]:
        """NAME=value words; None for a name alone, which `bare` allows."""
        first = value.split(maxsplit=1)
        if not bare and first and "=" not in first[0]:
            if len(first) < 2:
                raise self.refuse(f"{first[0]} is no NAME=value")
            return {first[0]: self.word(first[1])}
        found: dict[str, str | None] = {}
        for item in self.words(value):
            name, equals, text = item.partition("=")
            if not re.fullmatch(r"[\w.-]+", name) or not (equals or bare):
                raise self.refuse(f"{item} is no NAME=value")
            found[name] = text if equals else None
        if not found:
            raise self.refuse("NAME=value is missing")
        return found

    def values(self) -> dict[str, str]:
        if self.building is None:
            return self.global_arguments
        return {**self.building.arguments, **self.building.env}

    def words(self, text: str) -> list[str]:
        return words(text, self.values(), self.text.escape)

    def word(self, text: str) -> str:
        return word(text, self.values(), self.text.escape)

    def refuse(self, reason: str) -> TaskError:
        return TaskError(f"{self.file}:{self.line}: {reason}")


def _flags(value: str) -> tuple[dict[str, list[str]], str]:
    """The `--name=value` flags in front of an instruction's value, each with all its values, and the rest."""
    flags: dict[str, list[str]] = {}
    rest = value.strip()
    while found := re.match(r"--([a-z][a-z-]*)(?:=(\"[^\"]*\"|'[^']*'|\S*))?(?:\s+|$)", rest):
        text = found[2] or ""
        flags.setdefault(found[1], []).append(text[1:-1] if text[:1] in ("'", '"') else text)
        rest = rest[found.end() :]
    return flags, rest


def _json_words(text: str) -> list[str] | None:
    """The JSON list of texts that `text` is, or None when it is not one."""
    if not text.lstrip().startswith("["):
        return None
    try:
        found: Any = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(item, str) for item in found) else None
