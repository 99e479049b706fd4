"""Which rows are computed together, and how long a token prefix they compute once. A pure function of the tokens.

Rows are sorted by their tokens, so that rows with a common prefix are neighbours, and the tree of common prefixes
is walked bottom-up: at each node either all its rows form one group that shares the node's prefix, or each child
goes its own way, whichever computes fewer tokens. A group's rows are then cut into micro-batches by length, so that
each stays within the token budget and little is computed for padding.

Cost is counted in computed tokens; each forward and backward pass adds `PASS_OVERHEAD_TOKENS` for its fixed cost.

Sharing is one level deep: a micro-batch has one prefix. A row's last token is never part of it, so that every row
has at least one token of its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PASS_OVERHEAD_TOKENS = 64


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows computed in one go.

    rows: indices into the call's rows. prefix_length: leading tokens that all of them have in common and that are
    computed once; 0 when nothing is shared.
    """

    rows: tuple[int, ...]
    prefix_length: int


@dataclass(frozen=True, slots=True)
class Layout:
    """Micro-batches covering every row of positive length exactly once.

    row_tokens: tokens of all rows. computed_tokens: tokens that are really computed, padding included.
    """

    micro_batches: tuple[MicroBatch, ...]
    row_tokens: int
    computed_tokens: int


type Plan = list[MicroBatch]


def plan_layout(rows: Sequence[NDArray[np.int64]], *, max_tokens: int, share_prefixes: bool = True) -> Layout:
    """Lay out `rows`, each the token ids that have to be run through the model (empty rows are left out).

    max_tokens: budget of a micro-batch, prefix and padding included; a row that exceeds it is computed alone.
    """
    used = sorted((i for i in range(len(rows)) if len(rows[i])), key=lambda i: rows[i].tolist())
    lengths = [len(row) for row in rows]
    if not used:
        return Layout((), 0, 0)
    if share_prefixes and len(used) > 1:
        plan = _best_plan(rows, used, max_tokens)
    else:
        plan = _group(used, lengths, 0, max_tokens)
    return Layout(tuple(plan), sum(lengths), sum(_tokens(batch, lengths) for batch in plan))


def common_prefix_length(a: NDArray[np.int64], b: NDArray[np.int64]) -> int:
    """Number of leading tokens that two rows have in common."""
    shorter = min(len(a), len(b))
    different = np.nonzero(a[:shorter] != b[:shorter])[0]
    return int(different[0]) if len(different) else shorter


def _best_plan(rows: Sequence[NDArray[np.int64]], order: list[int], max_tokens: int) -> Plan:
    """Walk the prefix tree of the sorted rows bottom-up (a stack of open nodes, deepest last).

    An open node is (prefix length, start in `order`, plan of the children done so far). Rows i-1 and i in `order`
    share `shared` tokens, so every open node with a longer prefix is complete.
    """
    lengths = [len(row) for row in rows]
    open_nodes: list[tuple[int, int, Plan]] = [(0, 0, [])]
    for position, row in enumerate(order):
        shared = common_prefix_length(rows[order[position - 1]], rows[row]) if position else 0
        start = position
        finished: Plan = []
        while open_nodes[-1][0] > shared:
            depth, start, children = open_nodes.pop()
            finished = _choose(order[start:position], lengths, depth, children + finished, max_tokens)
        if open_nodes[-1][0] < shared:
            open_nodes.append((shared, start, []))
        open_nodes[-1][2].extend(finished)
        open_nodes.append((lengths[row] + 1, position, []))
    plan: Plan = []
    while open_nodes:
        depth, start, children = open_nodes.pop()
        plan = _choose(order[start:], lengths, depth, children + plan, max_tokens)
    return plan


def _choose(members: list[int], lengths: list[int], depth: int, children: Plan, max_tokens: int) -> Plan:
    """The cheapest of: all members as one group, the children's plan, the same with its prefix-less rows regrouped.

    A group shares the node's prefix, or nothing where that is cheaper.
    """
    kept = [batch for batch in children if batch.prefix_length]
    loose = [row for batch in children if not batch.prefix_length for row in batch.rows]
    options: list[Plan] = [children] if children else []
    for group, beside in ((members, []), (loose, kept)) if loose and kept else ((members, []),):
        shared = min(depth, min(lengths[row] for row in group) - 1)
        options.append(beside + _group(group, lengths, 0, max_tokens))
        if len(group) > 1 and shared > 0:
            options.append(beside + _group(group, lengths, shared, max_tokens))
    return min(options, key=lambda plan: sum(_cost(batch, lengths) for batch in plan))


def _group(members: list[int], lengths: list[int], prefix: int, max_tokens: int) -> Plan:
    """Cut rows that share `prefix` tokens into micro-batches: the cut of the length-sorted rows with least cost."""
    ordered = sorted(members, key=lambda row: lengths[row])
    overhead = PASS_OVERHEAD_TOKENS * (2 if prefix else 1)
    best = [0] * (len(ordered) + 1)
    cut = [0] * (len(ordered) + 1)
    for end in range(1, len(ordered) + 1):
        width = lengths[ordered[end - 1]] - prefix
        options: list[tuple[int, int]] = []
        for begin in range(end - 1, -1, -1):
            tokens = prefix + (end - begin) * width
            if tokens > max_tokens and end - begin > 1:
                break
            options.append((best[begin] + tokens + overhead, begin))
        best[end], cut[end] = min(options)
    batches: Plan = []
    end = len(ordered)
    while end:
        rows = tuple(ordered[cut[end] : end])
        batches.append(MicroBatch(rows, prefix if len(rows) > 1 else 0))
        end = cut[end]
    return batches[::-1]


def _tokens(batch: MicroBatch, lengths: list[int]) -> int:
    width = max(lengths[row] for row in batch.rows) - batch.prefix_length
    return batch.prefix_length + len(batch.rows) * width


def _cost(batch: MicroBatch, lengths: list[int]) -> int:
    return _tokens(batch, lengths) + PASS_OVERHEAD_TOKENS * (2 if batch.prefix_length else 1)
