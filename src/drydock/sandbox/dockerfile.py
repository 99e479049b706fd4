"""Reading a Dockerfile into a plan that can be replayed without Docker.

Understood: one FROM, ARG, ENV, WORKDIR, USER, SHELL, RUN (shell and exec form), COPY and ADD of local files with
--chown and --chmod. Without effect here: CMD, ENTRYPOINT, EXPOSE, HEALTHCHECK, LABEL, MAINTAINER, STOPSIGNAL, VOLUME
(a sandbox runs commands only when asked to). Everything else is refused with file, line and reason, before anything
is built.
"""

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, cast

from dockerfile_parse import DockerfileParser

from drydock.errors import TaskError

_WITHOUT_EFFECT = {"CMD", "ENTRYPOINT", "EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"}
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
_VARIABLE = re.compile(
    r"\\(?P<escaped>\$)|\$(?P<plain>\w+)|\$\{(?P<name>\w+)(?:(?P<operator>:?[-+])(?P<word>[^}]*))?\}"
)


@dataclass(frozen=True, slots=True)
class Run:
    """RUN: a command line with the environment, user and directory it has at this point."""

    line: int
    argv: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    user: str
    workdir: str


@dataclass(frozen=True, slots=True)
class Copy:
    """COPY or ADD: patterns below the build context, an absolute target ("/" at its end: a directory)."""

    line: int
    sources: tuple[str, ...]
    target: str
    owner: str
    mode: int | None


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """WORKDIR: the directory must exist."""

    line: int
    path: str


type Step = Run | Copy | MakeDirectory


@dataclass(frozen=True, slots=True)
class Plan:
    """What a Dockerfile builds, and how commands run in it afterwards."""

    file: Path
    base_image: str
    from_line: int
    steps: tuple[Step, ...]
    env: dict[str, str]
    user: str
    workdir: str


def read_dockerfile(file: Path) -> Plan:
    """The plan of a Dockerfile. Raises TaskError naming file, line and reason for what is not understood."""
    return _Reader(file).read()


@dataclass(slots=True)
class _Reader:
    file: Path
    base_image: str = ""
    from_line: int = 0
    steps: list[Step] = field(default_factory=list)
    arguments: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    shell: tuple[str, ...] = ("/bin/sh", "-c")
    user: str = ""
    workdir: str = "/"
    line: int = 0

    def read(self) -> Plan:
        content = self.file.read_bytes()
        if re.search(rb"^#\s*escape\s*=\s*[^\\\s]", content, re.MULTILINE | re.IGNORECASE):
            self.line = 1
            raise self.refuse("the `escape` directive is not supported")
        for entry in DockerfileParser(fileobj=cast(Any, io.BytesIO(content)), env_replace=False).structure:
            if entry["instruction"] != "COMMENT":
                self.line = entry["startline"] + 1
                self.take(entry["instruction"], entry["value"])
        if not self.base_image:
            raise self.refuse("there is no FROM")
        return Plan(self.file, self.base_image, self.from_line, tuple(self.steps), self.env, self.user, self.workdir)

    def take(self, instruction: str, value: str) -> None:
        if not self.base_image and instruction not in ("FROM", "ARG"):
            raise self.refuse(f"{instruction} before FROM")
        if instruction in ("RUN", "COPY", "ADD") and re.search(r"<<-?[\"']?\w", value):
            raise self.refuse("here-documents are not supported; put the text into a file and COPY it")
        match instruction:
            case "FROM":
                self.take_from(value)
            case "ARG":
                for name, default in self.pairs(value, bare=True).items():
                    self.arguments.setdefault(name, default)
            case "ENV":
                self.env.update(self.pairs(value))
            case "WORKDIR":
                self.workdir = str(PurePosixPath(self.workdir) / self.expand(_unquoted(value)))
                self.steps.append(MakeDirectory(self.line, self.workdir))
            case "USER":
                self.user = self.expand(value.strip())
            case "SHELL":
                self.shell = tuple(self.exec_form(value) or ())
                if not self.shell:
                    raise self.refuse("SHELL needs a JSON list")
            case "RUN":
                self.take_run(value)
            case "COPY" | "ADD":
                self.take_copy(instruction, value)
            case _ if instruction not in _WITHOUT_EFFECT:
                raise self.refuse(f"{instruction} is not supported")

    def take_from(self, value: str) -> None:
        if self.base_image:
            raise self.refuse("builds of several stages are not supported")
        words = [word for word in self.expand(value).split() if not word.startswith("--platform")]
        if not words or any(word.startswith("--") for word in words):
            raise self.refuse(f"FROM {value} is not understood")
        self.base_image, self.from_line = words[0], self.line

    def take_run(self, value: str) -> None:
        flags, command = _flags(value)
        if flags:
            raise self.refuse(f"RUN --{next(iter(flags))} is not supported")
        argv = self.exec_form(command)
        env = {**self.arguments, **self.env}
        self.steps.append(
            Run(self.line, tuple(argv or (*self.shell, command)), tuple(env.items()), self.user, self.workdir)
        )

    def take_copy(self, instruction: str, value: str) -> None:
        flags, rest = _flags(value)
        unknown = set(flags) - {"chown", "chmod", "link"}
        if unknown:
            raise self.refuse(f"{instruction} --{sorted(unknown)[0]} is not supported")
        words = [self.expand(word) for word in self.exec_form(rest) or _words(rest)]
        if len(words) < 2:
            raise self.refuse(f"{instruction} needs a source and a target")
        *sources, target = words
        for source in sources:
            if instruction == "ADD" and ("://" in source or source.startswith("git@")):
                raise self.refuse("ADD of an address is not supported; COPY a file of the task")
            if instruction == "ADD" and source.endswith(_ARCHIVES):
                raise self.refuse("ADD of an archive is not supported; COPY it and unpack it with RUN")
            if ".." in PurePosixPath(source).parts:
                raise self.refuse(f"{source} is outside the build context")
        if len(sources) > 1 and not target.endswith("/"):
            raise self.refuse("with several sources the target must end with /")
        mode = flags.get("chmod")
        if mode is not None and not re.fullmatch("[0-7]{3,4}", mode):
            raise self.refuse(f"--chmod={mode} is no octal mode")
        absolute = str(PurePosixPath(self.workdir) / target)
        if target.endswith(("/", "/.")) or target == ".":
            absolute = absolute.rstrip("/") + "/"
        owner = self.expand(flags.get("chown", ""))
        self.steps.append(Copy(self.line, tuple(sources), absolute, owner, int(mode, 8) if mode else None))

    def exec_form(self, text: str) -> list[str] | None:
        """The JSON list that `text` is, or None when it is not one."""
        if not text.lstrip().startswith("["):
            return None
        try:
            words: Any = json.loads(text)
        except ValueError:
            return None
        return words if isinstance(words, list) and all(isinstance(word, str) for word in words) else None

    def pairs(self, value: str, *, bare: bool = False) -> dict[str, str]:
        words = _words(value)
        if not bare and words and "=" not in words[0]:
            name, _, rest = value.strip().partition(" ")
            if not rest:
                raise self.refuse(f"{name} is no NAME=value")
            return {name: self.expand(_unquoted(rest))}
        found: dict[str, str] = {}
        for word in words:
            name, equals, text = word.partition("=")
            if not re.fullmatch(r"\w+", name) or not (equals or bare):
                raise self.refuse(f"{word} is no NAME=value")
            found[name] = self.expand(text)
        return found

    def expand(self, text: str) -> str:
        values: Mapping[str, str] = {**self.arguments, **self.env}

        def value_of(found: re.Match[str]) -> str:
            if found["escaped"]:
                return "$"
            name = found["plain"] or found["name"]
            operator, word = found["operator"] or "", found["word"] or ""
            present = bool(values.get(name)) if operator.startswith(":") else name in values
            if operator.endswith("-"):
                return values[name] if present else self.expand(word)
            if operator.endswith("+"):
                return self.expand(word) if present else ""
            return values.get(name, "")

        return _VARIABLE.sub(value_of, text)

    def refuse(self, reason: str) -> TaskError:
        return TaskError(f"{self.file}:{self.line}: {reason}")


def _flags(value: str) -> tuple[dict[str, str], str]:
    """The `--name=value` flags in front of an instruction's value, and the rest."""
    flags: dict[str, str] = {}
    rest = value.strip()
    while found := re.match(r"--([a-z]+)(?:=(\S+))?\s+", rest):
        flags[found[1]] = _unquoted(found[2] or "")
        rest = rest[found.end() :]
    return flags, rest


def _words(value: str) -> list[str]:
    """Split at blanks outside quotes; quotes are taken off, backslashes escape a quote, a blank or themselves."""
    words: list[str] = []
    word: list[str] | None = None
    quote = ""
    position = 0
    while position < len(value):
        letter = value[position]
        following = value[position + 1] if position + 1 < len(value) else ""
        if letter == "\\" and following and following in "\"'\\ " and quote != "'":
            word = [*(word or []), following]
            position += 1
        elif quote:
            if letter == quote:
                quote = ""
            else:
                word = [*(word or []), letter]
        elif letter in "\"'":
            quote, word = letter, word or []
        elif letter.isspace():
            if word is not None:
                words.append("".join(word))
            word = None
        else:
            word = [*(word or []), letter]
        position += 1
    if word is not None:
        words.append("".join(word))
    return words


def _unquoted(value: str) -> str:
    text = value.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
