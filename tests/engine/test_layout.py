import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from drydock.engine.layout import Layout, common_prefix_length, plan_layout


def rows_of(*texts: list[int]) -> list[np.ndarray]:
    return [np.asarray(text, np.int64) for text in texts]


def check(layout: Layout, rows: list[np.ndarray], max_tokens: int) -> None:
    placed = sorted(row for batch in layout.micro_batches for row in batch.rows)
    assert placed == [i for i, row in enumerate(rows) if len(row)]
    computed = 0
    for batch in layout.micro_batches:
        first = rows[batch.rows[0]]
        for row in batch.rows:
            assert common_prefix_length(first, rows[row]) >= batch.prefix_length
            assert len(rows[row]) > batch.prefix_length
        width = max(len(rows[row]) for row in batch.rows) - batch.prefix_length
        tokens = batch.prefix_length + len(batch.rows) * width
        assert tokens <= max_tokens or len(batch.rows) == 1
        computed += tokens
    assert computed == layout.computed_tokens
    assert layout.row_tokens == sum(map(len, rows))


tokens = st.lists(st.integers(0, 1), max_size=12)
forest = st.lists(st.tuples(st.integers(0, 2), tokens), max_size=14)


@settings(max_examples=200, deadline=None)
@given(forest, st.integers(1, 2000), st.integers(1, 400))
def test_every_row_is_placed_once_under_a_prefix_it_has(rows_given, max_tokens: int, stretch: int):
    prefixes = [[7] * stretch, [7] * stretch + [8] * 90, [9] * 5]
    rows = rows_of(*(prefixes[which] + tail if tail else [] for which, tail in rows_given))
    check(plan_layout(rows, max_tokens=max_tokens), rows, max_tokens)
    check(plan_layout(rows, max_tokens=max_tokens, share_prefixes=False), rows, max_tokens)


@settings(max_examples=50, deadline=None)
@given(forest, st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_change_the_cost(rows_given, random):
    rows = rows_of(*([1] * 150 * which + tail for which, tail in rows_given))
    shuffled = list(rows)
    random.shuffle(shuffled)
    assert plan_layout(rows, max_tokens=512).computed_tokens == plan_layout(shuffled, max_tokens=512).computed_tokens


def test_groups_share_their_own_prompt_rather_than_the_common_system_prompt():
    rng = np.random.default_rng(0)
    system, prompts = rng.integers(0, 99, 300), rng.integers(0, 99, (4, 1200))
    rows = [np.concatenate([system, prompts[i // 8], rng.integers(0, 99, 200)]) for i in range(32)]
    layout = plan_layout(rows, max_tokens=16_384)
    assert sorted(batch.prefix_length for batch in layout.micro_batches) == [1500] * 4
    assert layout.computed_tokens == 4 * (1500 + 8 * 200)


def test_a_short_common_prefix_is_not_worth_a_pass_of_its_own():
    rows = rows_of([1, 2, 3, 4], [1, 2, 3, 5])
    layout = plan_layout(rows, max_tokens=100)
    assert [batch.prefix_length for batch in layout.micro_batches] == [0]


def test_a_row_that_is_a_prefix_of_another_keeps_a_token_of_its_own():
    rows = [np.zeros(500, np.int64), np.zeros(501, np.int64), np.zeros(500, np.int64)]
    layout = plan_layout(rows, max_tokens=5000)
    assert layout.micro_batches[0].prefix_length == 499
    assert layout.computed_tokens == 499 + 3 * 2


def test_a_chain_of_nested_rows_is_laid_out_without_recursion():
    rows = [np.zeros(n, np.int64) for n in range(1, 400)]
    check(plan_layout(rows, max_tokens=4096), rows, 4096)


def test_rows_of_unequal_length_are_not_padded_far():
    rng = np.random.default_rng(1)
    rows = [rng.integers(0, 1000, n) for n in (10, 12, 11, 900, 901, 13, 902, 9)]
    layout = plan_layout(rows, max_tokens=10_000)
    assert layout.computed_tokens < 1.02 * layout.row_tokens + 20
