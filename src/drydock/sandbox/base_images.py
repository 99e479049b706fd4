"""Which root file system stands for the image that a Dockerfile names in FROM.

There is no registry here: an image name is accepted when a pattern (as in a shell) matches it. The patterns that are
shipped stand for the Debian release that the sandbox is built from. A run can add patterns that lead to the same
system or to another directory whose inodes belong to the sandbox's id range and which holds bash and python3; and
`drydock sandbox build --tarball FILE --image NAME` adds an image of that name to the cache.
"""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import quote, unquote

from drydock.sandbox.rootfs import SUITE

BUILT_IN = "debian"
"""Stands for the root file system that `drydock sandbox build` makes."""

DEFAULT_BASE_IMAGES: dict[str, str] = dict.fromkeys(
    ("debian", "debian:latest", f"debian:{SUITE}*", "debian:12*", "debian:stable*"), BUILT_IN
)


def base_directory(image: str, mapping: Mapping[str, str], built_in: Path, images: Path | None = None) -> Path | None:
    """The root file system for `image` under `mapping`, then `images`, then the defaults; None for an unknown image.

    images: the directory of those that were added from tarballs.
    """
    system = _match(image, mapping)
    if system is None and images is not None and image_path(images, image).is_dir():
        return image_path(images, image).resolve()
    system = system or _match(image, DEFAULT_BASE_IMAGES)
    if system is None:
        return None
    return built_in if system == BUILT_IN else Path(system)


def _match(image: str, mapping: Mapping[str, str]) -> str | None:
    name = short_name(image)
    for pattern, system in mapping.items():
        if fnmatchcase(name, pattern) or fnmatchcase(image, pattern):
            return system
    return None


def known_images(mapping: Mapping[str, str], images: Path) -> list[str]:
    """The names and patterns that `base_directory` accepts."""
    added = sorted(unquote(path.name) for path in images.glob("[!.]*")) if images.is_dir() else []
    return [*mapping, *added, *DEFAULT_BASE_IMAGES]


def short_name(image: str) -> str:
    """An image's name without digest, and without the registry and library that a name means by itself."""
    return image.partition("@")[0].removeprefix("docker.io/").removeprefix("library/")


def image_path(images: Path, image: str) -> Path:
    """Where an image that was added from a tarball is; a name without a tag means `latest`, as in Docker."""
    name = short_name(image)
    return images / quote(name if ":" in name.rpartition("/")[2] else f"{name}:latest", safe="")
