"""The order of supervised training: batches drawn without replacement from shuffled passes."""

import random
from collections.abc import Iterator, Sequence


def shuffled_batches[Item](items: Sequence[Item], size: int, seed: str) -> Iterator[list[Item]]:
    """Batches for ever; what is left of a pass that fills no whole batch is left out of it.

    A set smaller than a batch is one batch. The same seed gives the same batches.
    """
    rng = random.Random(seed)
    pool: list[Item] = []
    while True:
        if len(pool) < size:
            pool = list(items)
            rng.shuffle(pool)
        yield [pool.pop() for _ in range(min(size, len(pool)))]


def batches_a_pass(count: int, size: int) -> int:
    """How many batches a pass over `count` items has."""
    return max(1, count // size)
