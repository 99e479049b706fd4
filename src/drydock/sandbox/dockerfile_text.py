"""Splitting a Dockerfile into instructions: comments, continuation lines, here-documents, the `escape` directive."""

import re
from dataclasses import dataclass
from pathlib import Path

from drydock.errors import TaskError

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(.*?)\s*")
_INSTRUCTION = re.compile(r"\s*(\w+)(?:\s+(.*))?", re.DOTALL)
_HEREDOC = re.compile(r"\d*<<(?P<strip>-?)(?P<quote>[\"']?)(?P<name>[A-Za-z_][\w.-]*)(?P=quote)(?=\s|$|[;&|)>])")
_WITH_HEREDOCS = ("ADD", "COPY", "RUN")


@dataclass(frozen=True, slots=True)
class Heredoc:
    """A here-document: `text` as its reader sees it, `source` with its end line, as a shell takes it."""

    name: str
    text: str
    source: str
    quoted: bool


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: the line that it starts on (from 1), its name in capitals, its value with lines joined."""

    line: int
    name: str
    value: str
    heredocs: tuple[Heredoc, ...] = ()


@dataclass(frozen=True, slots=True)
class DockerfileText:
    """The instructions of a file in order, and the character that escapes."""

    instructions: tuple[Instruction, ...]
    escape: str = "\\"


def split_dockerfile(file: Path) -> DockerfileText:
    """Read and split `file`. Raises TaskError naming file and line for text that is no Dockerfile."""
    try:
        lines = file.read_bytes().decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError as error:
        raise TaskError(f"{file}:1: the file is not UTF-8 text ({error.reason})") from None
    escape = _escape_directive(file, lines)
    continued = re.compile(re.escape(escape) + r"[ \t]*$")
    found: list[Instruction] = []
    position = 0
    while position < len(lines):
        start = position
        text = lines[position]
        position += 1
        if not text.strip() or text.lstrip().startswith("#"):
            continue
        while continued.search(text):
            text = continued.sub("", text)
            while position < len(lines) and (not lines[position].strip() or lines[position].lstrip().startswith("#")):
                position += 1
            if position == len(lines):
                break
            text += lines[position]
            position += 1
        parts = _INSTRUCTION.fullmatch(text)
        if parts is None:
            raise TaskError(f"{file}:{start + 1}: {text.strip()[:80]} is no instruction")
        name, value = parts[1].upper(), (parts[2] or "").strip()
        heredocs = []
        for opening in _openings(value) if name in _WITH_HEREDOCS else ():
            end = _end_of(lines, position, opening)
            if end is None:
                raise TaskError(f"{file}:{start + 1}: the here-document {opening['name']} has no end line")
            heredocs.append(_heredoc(lines[position : end + 1], opening))
            position = end + 1
        found.append(Instruction(start + 1, name, value, tuple(heredocs)))
    return DockerfileText(tuple(found), escape)


def without_heredocs(value: str) -> str:
    """An instruction's value without what opens its here-documents."""
    for opening in reversed(_openings(value)):
        value = value[: opening.start()] + value[opening.end() :]
    return value.strip()


def _escape_directive(file: Path, lines: list[str]) -> str:
    for number, line in enumerate(lines, start=1):
        directive = _DIRECTIVE.fullmatch(line.strip())
        if directive is None:
            break
        if directive[1].lower() == "escape":
            if directive[2] not in ("\\", "`"):
                raise TaskError(f"{file}:{number}: the `escape` directive is \\ or `, not {directive[2]}")
            return directive[2]
    return "\\"


def _openings(value: str) -> list[re.Match[str]]:
    """Where here-documents are opened: at the start of a word, outside quotes."""
    found: list[re.Match[str]] = []
    quote = ""
    position = 0
    at_word = True
    while position < len(value):
        letter = value[position]
        opening = _HEREDOC.match(value, position) if at_word and not quote else None
        if opening is not None:
            found.append(opening)
            position = opening.end()
            at_word = False
            continue
        if letter == "\\" and quote != "'":
            position += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        at_word = not quote and letter.isspace()
        position += 1
    return found


def _end_of(lines: list[str], start: int, opening: re.Match[str]) -> int | None:
    for number in range(start, len(lines)):
        line = lines[number].lstrip("\t") if opening["strip"] else lines[number]
        if line == opening["name"]:
            return number
    return None


def _heredoc(lines: list[str], opening: re.Match[str]) -> Heredoc:
    body = [line.lstrip("\t") if opening["strip"] else line for line in lines[:-1]]
    text = "".join(f"{line}\n" for line in body)
    return Heredoc(opening["name"], text, "\n".join(lines) + "\n", bool(opening["quote"]))
