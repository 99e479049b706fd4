"""A rollout as a page for a terminal: every token, coloured by what it is.

Prompt tokens are dim. Sampled tokens that are trained stand between ⟦ and ⟧ in the colour of their probability; sampled
ones with loss mask 0 stand between ⟨ and ⟩ and are cyan. So the marks alone say what the colours say about masks,
and each turn's line names its least likely tokens: the page reads the same without colour.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from drydock.report.message_text import messages_text
from drydock.report.printable import printable
from drydock.report.trajectory_facts import TellTokens, branch_turns, rollout_facts, token_facts, turn_facts
from drydock.rollout.history import Branch
from drydock.rollout.trajectory import Trajectory

PROBABILITY_STYLES = ((-0.105, "green"), (-0.693, "default"), (-2.303, "yellow"), (-4.605, "red"))
"""Lowest log-prob and style, down from probability 0.9; below 0.01 is `bold white on red`."""

HARDLY_EVER, NOT_TRAINED, PROMPT = "bold white on red", "cyan", "dim"
LOWEST = 3
"""How many of a turn's least likely tokens are named."""

PROMPT_CHARS = 800
"""Longest stretch of prompt that is shown whole unless all is asked for."""


def rollout_page(trajectory: Trajectory, tell: TellTokens, prompt_chars: int | None) -> Iterator[Text]:
    """The whole rollout, line by line; stretches of prompt are cut to `prompt_chars` characters (None: never)."""
    yield from _head(trajectory)
    for branch, own in branch_turns(trajectory):
        first = branch.turns[own[0]]
        start = "" if first.parent is None else f", after turn {first.parent}"
        yield Text()
        yield Text(f"── branch {branch.number}{start}{_because(first.reason)}", style="bold")
        for place in own:
            yield from _turn(branch, place, tell, prompt_chars)


def turn_page(branch: Branch, place: int, tell: TellTokens) -> Iterator[Text]:
    """One turn with a line for every token that it added."""
    facts = turn_facts(branch, place)
    yield Text(f"branch {facts['branch']}{_because(facts['reason'])}", style="bold")
    if not facts["sampled_tokens"]:
        yield from _turn_without_tokens(branch, place, None)
        return
    yield _turn_line(facts)
    yield Text(f"{'place':>8} {'id':>8} mask {'log-prob':>9} {'prob':>7}  text", style="bold")
    for token in token_facts(branch, place, tell):
        logprob = token["logprob"]
        numbers = f"{logprob:9.4f} {math.exp(logprob):7.4f}" if logprob is not None else " " * 17
        line = Text(f"{token['place']:8} {token['id']:8} {token['mask']:4} {numbers}  ")
        yield line.append(repr(token["text"]), style=_style(token))


def _head(trajectory: Trajectory) -> Iterator[Text]:
    facts = rollout_facts(trajectory)
    yield Text(f"{facts['task']}, attempt {facts['repetition']}, step {facts['step']} ({facts['split']})", style="bold")
    reward = "no reward" if facts["reward"] is None else f"reward {facts['reward']:g}"
    advantage = "" if facts["advantage"] is None else f", advantage {facts['advantage']:.4g}"
    yield Text(f"{facts['outcome']}, {reward}{advantage}{', submitted' if facts['submitted'] else ''}")
    turns, branch_count = len(facts["turns"]), len(facts["branches"])
    yield Text(f"turns {turns}, branches {branch_count}, tokens {facts['tokens']}, trained {facts['trained_tokens']}")
    if facts["timings"]:
        yield Text(", ".join(f"{name.removesuffix('_s')} {value:.2f} s" for name, value in facts["timings"].items()))
    if facts["branch_reasons"]:
        yield Text("branch reasons: " + ", ".join(f"{name} {count}" for name, count in facts["branch_reasons"].items()))
    for name in ("error", "sampler_error"):
        if facts[name]:
            yield Text(f"{name}: {printable(facts[name])}", style="red")


def _turn(branch: Branch, place: int, tell: TellTokens, prompt_chars: int | None) -> Iterator[Text]:
    if not branch.turns[place].sampled_ids:
        yield from _turn_without_tokens(branch, place, prompt_chars)
        return
    tokens = token_facts(branch, place, tell)
    sampled = [token for token in tokens if token["logprob"] is not None]
    line = _turn_line(turn_facts(branch, place))
    lowest = sorted(sampled, key=lambda token: token["logprob"])[:LOWEST]
    line.append("  lowest " + ", ".join(f"{token['logprob']:.2f} {token['text']!r}" for token in lowest))
    yield Text()
    yield line
    body = Text(printable(_cut("".join(token["text"] for token in tokens if token["logprob"] is None), prompt_chars)))
    body.stylize(PROMPT)
    opening, closing = "⟦⟧" if branch.trains(branch.turns[place]) else "⟨⟩"
    body.append(opening, style="bold")
    for token in sampled:
        body.append(printable(token["text"]), style=_style(token))
    yield body.append(closing, style="bold")


def _turn_without_tokens(branch: Branch, place: int, prompt_chars: int | None) -> Iterator[Text]:
    """What was said, where an endpoint gave no tokens."""
    turn = branch.turns[place]
    yield Text()
    yield _turn_line(turn_facts(branch, place))
    yield Text(printable(_cut(messages_text(turn.given), prompt_chars)), style=PROMPT)
    if turn.reply:
        yield Text(printable(messages_text([turn.reply])), style=NOT_TRAINED)


def _turn_line(facts: dict[str, Any]) -> Text:
    mask = "trained" if facts["trained"] else "mask 0"
    mean = "" if facts["logprob_mean"] is None else f"  log-prob mean {facts['logprob_mean']:.4f}"
    began = datetime.fromtimestamp(facts["started_at"], UTC)
    version = "" if facts["policy_version"] is None else f"  policy {facts['policy_version']}"
    return Text(
        f"turn {facts['index']}  {facts['finish_reason']}  "
        f"prompt {facts['prompt_tokens']} ({facts['new_prompt_tokens']} new)  "
        f"sampled {facts['sampled_tokens']} ({mask}){version}  {facts['seconds']:.2f} s at {began:%H:%M:%S}Z{mean}",
        style="bold",
    )


def _because(reason: str | None) -> str:
    return f": {reason}" if reason else ""


def _style(token: dict[str, Any]) -> str:
    if token["logprob"] is None:
        return PROMPT
    if not token["mask"]:
        return NOT_TRAINED
    return next((style for lowest, style in PROBABILITY_STYLES if token["logprob"] >= lowest), HARDLY_EVER)


def _cut(text: str, chars: int | None) -> str:
    if chars is None or len(text) <= chars:
        return text
    half = chars // 2
    return f"{text[: chars - half]}[… {len(text) - chars} characters …]{text[len(text) - half :]}"
