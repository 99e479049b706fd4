"""Which root file system stands for the image that a Dockerfile names in FROM.

There is no registry here: an image name is accepted when a pattern (as in a shell) matches it. The patterns that are
shipped stand for the Debian release that the sandbox is built from; a run can add patterns that lead to the same
system or to another directory whose inodes belong to the sandbox's id range and which holds bash and python3.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from drydock.sandbox.rootfs import SUITE

BUILT_IN = "debian"
"""Stands for the root file system that `drydock sandbox build` makes."""

DEFAULT_BASE_IMAGES: dict[str, str] = dict.fromkeys(
    ("debian", "debian:latest", f"debian:{SUITE}*", "debian:12*", "debian:stable*"), BUILT_IN
)


def base_directory(image: str, mapping: Mapping[str, str], built_in: Path) -> Path | None:
    """The root file system for `image` under the defaults and `mapping` (which wins), None for an unknown image."""
    name = image.partition("@")[0].removeprefix("docker.io/").removeprefix("library/")
    for pattern, system in [*mapping.items(), *DEFAULT_BASE_IMAGES.items()]:
        if fnmatchcase(name, pattern) or fnmatchcase(image, pattern):
            return built_in if system == BUILT_IN else Path(system)
    return None
