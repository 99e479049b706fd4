"""Words of a Dockerfile's instruction as Docker reads them: quotes, escapes and variables, in one pass.

Variables are replaced outside quotes and in double quotes, never in single quotes; a value put in place of a variable
is not split into words.
"""

import re
from collections.abc import Mapping
from fnmatch import translate

_NAME = re.compile(r"\w+")
_MODIFIER = re.compile(r"(:?[-+?]|##?|%%?|//?)")


class NotUnderstood(ValueError):
    """The text cannot be read; the message says why."""


def words(text: str, values: Mapping[str, str], escape: str = "\\") -> list[str]:
    """`text` split at blanks outside quotes, with quotes taken off and variables replaced."""
    return _Reader(text, values, escape).read(split=True)


def word(text: str, values: Mapping[str, str], escape: str = "\\") -> str:
    """All of `text` as one word."""
    return "".join(_Reader(text.strip(), values, escape).read(split=False))


def replaced(text: str, values: Mapping[str, str], escape: str = "\\") -> str:
    """`text` with variables replaced and everything else, quotes too, as it is: the body of a here-document."""
    return "".join(_Reader(text, values, escape).read(split=False, quotes=False))


class _Reader:
    def __init__(self, text: str, values: Mapping[str, str], escape: str) -> None:
        self.text = text
        self.values = values
        self.escape = escape
        self.position = 0

    def read(self, *, split: bool, quotes: bool = True, until: str = "") -> list[str]:
        found: list[str] = []
        current: list[str] | None = None
        quote = ""
        while self.position < len(self.text):
            letter = self.text[self.position]
            if letter == until and not quote:
                break
            self.position += 1
            if letter == self.escape and quote != "'" and self.position < len(self.text):
                following = self.text[self.position]
                kept = (quote == '"' and following not in ('"', "$", self.escape)) or (
                    not quotes and following not in ("$", self.escape)
                )
                current = [*(current or []), (letter if kept else "") + following]
                self.position += 1
            elif quotes and letter == quote:
                quote = ""
            elif quotes and not quote and letter in "\"'":
                quote, current = letter, current or []
            elif letter == "$" and quote != "'":
                current = [*(current or []), self.variable()]
            elif split and not quote and letter.isspace():
                if current is not None:
                    found.append("".join(current))
                current = None
            else:
                current = [*(current or []), letter]
        if quote:
            raise NotUnderstood(f"a {quote} is not closed")
        if current is not None:
            found.append("".join(current))
        return found

    def variable(self) -> str:
        braced = self.text.startswith("{", self.position)
        start = self.position + braced
        name = _NAME.match(self.text, start)
        if name is None:
            if braced:
                raise NotUnderstood("${ without a name")
            return "$"
        self.position = name.end()
        if not braced:
            return self.values.get(name[0], "")
        if self.text.startswith("}", self.position):
            self.position += 1
            return self.values.get(name[0], "")
        modifier = _MODIFIER.match(self.text, self.position)
        if modifier is None:
            raise NotUnderstood(f"${{{name[0]}… is not understood")
        self.position = modifier.end()
        argument = "".join(self.read(split=False, until="}"))
        if not self.text.startswith("}", self.position):
            raise NotUnderstood(f"${{{name[0]} is not closed")
        self.position += 1
        return _modified(name[0], self.values, modifier[0], argument)


def _modified(name: str, values: Mapping[str, str], modifier: str, argument: str) -> str:
    value = values.get(name, "")
    present = bool(value) if modifier.startswith(":") else name in values
    match modifier.lstrip(":"):
        case "-":
            return value if present else argument
        case "+":
            return argument if present else ""
        case "?":
            if not present:
                raise NotUnderstood(f"{name}: {argument or 'is not set'}")
            return value
        case "#" | "##" | "%" | "%%" as cut:
            return _trimmed(value, argument, cut)
        case _ as slash:
            pattern, _, new = argument.partition("/")
            return re.sub(_expression(pattern), lambda _: new, value, count=0 if slash == "//" else 1)


def _trimmed(value: str, pattern: str, cut: str) -> str:
    """`value` without the shortest (one sign) or longest (two) start (#) or end (%) that fits the pattern."""
    lengths = range(len(value) + 1) if len(cut) == 1 else range(len(value), -1, -1)
    for length in lengths:
        piece = value[:length] if cut[0] == "#" else value[len(value) - length :]
        if re.fullmatch(_expression(pattern), piece):
            return value[length:] if cut[0] == "#" else value[: len(value) - length]
    return value


def _expression(pattern: str) -> str:
    return translate(pattern).removesuffix(r"\Z")
