"""One small shell task: what is asked, the files it starts from, the answer, and how it is solved.

Two kinds. *write*: put a given word into a given file (one command). *find*: find which file of a small tree defines a
given function and write its path to a file (two commands, the second depends on what the first one printed).
Everything is drawn from a seeded generator; held-out tasks use another stream of the same distribution.
"""

import random
from dataclasses import dataclass
from enum import StrEnum

WORDS = tuple(
    """
    acorn alder amber anchor apple arrow aspen badger bamboo basil beacon beetle birch bison bottle branch bridge bronze
    button cactus candle canyon carbon castle cedar cherry cinder cliff clover cobalt comet copper coral cotton crane
    crater cricket crystal dagger daisy desert dragon eagle ember falcon feather fern finch flint forest fossil garden
    garnet ginger glacier goblet granite harbor hazel heron hollow honey island ivory jacket jasper jungle kettle kitten
    ladder lagoon lantern laurel lemon lily linen lizard lotus magnet maple marble meadow mirror moss nectar needle
    oasis ocean olive onion orchid otter oyster paddle panda paper pebble pepper pigeon pillow planet plum pocket pollen
    poppy prairie puffin quartz rabbit raven ribbon river rocket saddle salmon sapphire shadow silver spider spruce
    summit sunset
    """.split()  # noqa: SIM905
)
FOLDERS = ("src", "lib", "core", "app", "pkg")
WRITE_PHRASES = (
    "Write the word {word} to the file {target}.",
    "Put {word} into {target}.",
    "Save {word} in {target}.",
    "Store the word {word} as {target}.",
)
FIND_PHRASES = (
    "Find the file that defines {function} and write its path to {target}.",
    "Which file defines {function}? Write its path to {target}.",
    "Look for the definition of {function}. Put the path of its file into {target}.",
    "Locate the function {function} and save the path of its file in {target}.",
)


class Kind(StrEnum):
    WRITE = "write"
    FIND = "find"


@dataclass(frozen=True, slots=True)
class ShellTask:
    """instruction: text of instruction.md, which is word for word what the agent is told.

    files: path below the working directory -> content; answer: what `target` must hold.

    White space around the answer and a leading `./` do not matter.
    """

    name: str
    kind: Kind
    instruction: str
    files: dict[str, str]
    target: str
    answer: str
    function: str = ""

    @property
    def write_command(self) -> str:
        return write_command(self.answer, self.target)

    @property
    def search_command(self) -> str:
        """What an expert runs first in a *find* task."""
        return search_command(self.function)

    @property
    def solution(self) -> str:
        """A script that solves the task, run in the working directory."""
        return f"{self.search_command} > {self.target}" if self.kind is Kind.FIND else self.write_command


def write_command(word: str, target: str) -> str:
    return f"echo {word} > {target}"


def search_command(function: str) -> str:
    return f"grep -rl {function} ."


def word(rng: random.Random) -> str:
    """One of the words that tasks are made of."""
    return rng.choice(WORDS)


def draw_task(rng: random.Random, name: str) -> ShellTask:
    """Draw a task; both kinds are equally likely."""
    return _draw_write(rng, name) if rng.random() < 0.5 else _draw_find(rng, name)


def _draw_write(rng: random.Random, name: str) -> ShellTask:
    answer, target = word(rng), f"{word(rng)}.txt"
    instruction = rng.choice(WRITE_PHRASES).format(word=answer, target=target) + "\n"
    return ShellTask(name, Kind.WRITE, instruction, {}, target, answer)


def _draw_find(rng: random.Random, name: str) -> ShellTask:
    paths: dict[str, str] = {}
    while len(paths) < rng.randint(3, 5):
        paths.setdefault(f"{rng.choice(FOLDERS)}/{word(rng)}.py", word(rng))
    if len(set(paths.values())) < len(paths):
        return _draw_find(rng, name)
    answer = rng.choice(sorted(paths))
    function, target = paths[answer], f"{word(rng)}.txt"
    files = {path: f"def {defined}():\n    return {rng.randint(1, 99)}\n" for path, defined in paths.items()}
    instruction = rng.choice(FIND_PHRASES).format(function=function, target=target) + "\n"
    return ShellTask(name, Kind.FIND, instruction, files, target, answer, function)
