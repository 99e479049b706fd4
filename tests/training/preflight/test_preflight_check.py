"""A check answers, raises or takes too long: each becomes findings, none hides another, and one cause is shown once."""

import asyncio

import pytest

from drydock.errors import ConfigError, ServiceError
from drydock.finding import Finding, Level
from drydock.training.preflight import Check, PreflightFailed, find_all, in_thread, refuse_failures

FINE = Finding("fine", Level.PASS, "all is well")


def check(find, *, name: str = "it", limit_s: float = 20.0) -> Check:
    return Check("area", name, "the answer", limit_s, "mend it", find)


async def never() -> list[Finding]:
    await asyncio.Event().wait()
    raise AssertionError


def raising(error: Exception):
    async def find() -> list[Finding]:
        raise error

    return find


async def test_findings_come_in_order_and_each_wait_is_named() -> None:
    waits: list[str] = []
    found = await find_all([check(in_thread(lambda: [FINE])), check(in_thread(lambda: []))], waits.append)
    assert found == [("area", FINE)]
    assert waits == ["the answer", "the answer"]


@pytest.mark.parametrize("error", [ConfigError("bad setting"), OSError("bad disk")])
async def test_what_is_raised_fails_with_the_checks_remedy(error: Exception) -> None:
    assert await check(raising(error)).findings() == [Finding("it", Level.FAIL, str(error), "mend it")]


async def test_a_check_that_never_ends_fails_by_the_name_of_its_wait() -> None:
    (finding,) = await check(never, limit_s=0.05).findings()
    assert (finding.level, finding.detail) == (Level.FAIL, "gave up waiting for the answer after 0.05 s")


async def test_errors_in_groups_are_told_apart_and_a_fault_of_our_own_is_not_hidden() -> None:
    group = ExceptionGroup("", [ServiceError("one"), ExceptionGroup("", [ConfigError("two")])])
    assert [finding.detail for finding in await check(raising(group)).findings()] == ["one", "two"]
    with pytest.raises(ExceptionGroup):
        await check(raising(ExceptionGroup("", [ServiceError("one"), KeyError("ours")]))).findings()
    with pytest.raises(KeyError):
        await check(raising(KeyError("ours"))).findings()


async def test_one_cause_that_many_checks_meet_is_shown_once() -> None:
    checks = [check(raising(ConfigError("no tasks")), name=name) for name in ("one", "two")]
    found = await find_all(checks, lambda _: None)
    assert [finding.name for _, finding in found] == ["one"]


def test_a_refusal_names_every_failure_with_its_remedy_and_warnings_are_told() -> None:
    notes: list[str] = []
    bad = [("a", Finding("x", Level.FAIL, "x is broken", "mend x")), ("b", Finding("y", Level.FAIL, "no y", "add y"))]
    warning = ("c", Finding("z", Level.WARN, "little z", "more z"))
    refuse_failures([("a", FINE), warning], notes.append)
    assert notes == ["warning: little z (more z)"]
    with pytest.raises(PreflightFailed) as refused:
        refuse_failures([*bad, warning], notes.append)
    assert str(refused.value) == (
        "2 checks failed, and nothing was created:"
        "\n- a, x: x is broken\n  remedy: mend x\n- b, y: no y\n  remedy: add y"
    )
