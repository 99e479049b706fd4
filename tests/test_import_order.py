"""Which way imports point between Drydock's packages, read from the source of every module.

A package imports packages before it in ORDER only, also inside functions. `report` stands before `training`: the loop
writes metrics and draws the curve as it goes, and what reports show they read from a run's files, not from the loop.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import drydock

ROOT = Path(drydock.__file__).parent

BASE = ("errors", "amount", "atomic", "bounded_cache", "deadline", "file_lock", "finding", "own_directory")
"""Modules without a package: about nothing but the standard library."""

ORDER = (
    *BASE,
    "wire",
    "chat",
    "losses",
    "engine",
    "service",
    "client",
    "proxy",
    "sandbox",
    "harness",
    "rollout",
    "report",
    "training",
    "recipes",
    "cli",
)

EXCEPTIONS: frozenset[tuple[str, str]] = frozenset()
"""(module, imported module) that may point the other way, each with its reason beside it."""

WITHOUT_TORCH = (
    *("wire", "chat", "client", "proxy", "sandbox", "harness"),
    *("rollout", "report", "training", "recipes", "cli"),
)
"""Packages of the driver; the service's API process is held to the same by its entry module."""

HEAVY = frozenset({"torch", "transformers", "vllm", "peft"})


def modules() -> dict[str, Path]:
    """Dotted name to file, of every module of the distribution."""
    found = {}
    for file in sorted(ROOT.rglob("*.py")):
        parts = ("drydock", *file.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


MODULES = modules()


def imported(tree: ast.AST, *, lazily_too: bool) -> Iterator[str]:
    """Dotted names that a module imports, `from package import module` as `package.module` where that is one."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    whole = f"{module}.{alias.name}"
                    yield whole if whole in MODULES else module
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if not lazily_too:
                continue
            case _:
                yield from imported(node, lazily_too=lazily_too)


def imports_of(module: str, *, lazily_too: bool) -> set[str]:
    return set(imported(ast.parse(MODULES[module].read_text(encoding="utf-8")), lazily_too=lazily_too))


def row(module: str) -> int:
    """Place in ORDER; raises ValueError for a package that has none yet."""
    return ORDER.index(module.split(".")[1])


@pytest.mark.parametrize("module", [name for name in MODULES if name != "drydock"])
def test_a_module_imports_rows_above_its_own_only(module: str):
    own = [name for name in imports_of(module, lazily_too=True) if name.startswith("drydock.")]
    wrong = [name for name in own if row(name) > row(module) and (module, name) not in EXCEPTIONS]
    assert wrong == [], f"{module} imports {wrong}, which stand below it in the order {ORDER}"


@pytest.mark.parametrize("module", BASE)
def test_the_base_modules_need_the_standard_library_only(module: str):
    known = {"drydock", *sys.stdlib_module_names}
    foreign = {name for name in imports_of(f"drydock.{module}", lazily_too=True) if name.split(".")[0] not in known}
    assert foreign == set()


def loads(module: str) -> dict[str, str]:
    """Everything that importing `module` loads, each with the module that imports it."""
    because = {module: module}
    pending = [module]
    while pending:
        current = pending.pop()
        wanted = imports_of(current, lazily_too=False) if current in MODULES else set()
        for name in wanted:
            parts = name.split(".")
            for depth in range(1, len(parts) + 1):
                part = ".".join(parts[:depth])
                if part not in because:
                    because[part] = current
                    pending.append(part)
    return because


@pytest.mark.parametrize(
    "module",
    [name for name in MODULES if name.split(".")[1:2] and name.split(".")[1] in WITHOUT_TORCH]
    + ["drydock.service.server", "drydock.service.embedded", "drydock.service.worker"],
)
def test_driver_and_api_process_load_no_torch(module: str):
    loaded = loads(module)
    assert {name: loaded[name] for name in HEAVY & loaded.keys()} == {}


def test_importing_drydock_loads_nothing_else():
    assert set(loads("drydock")) == {"drydock"}
