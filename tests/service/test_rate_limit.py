from drydock.service.rate_limit import RateLimit


def test_a_burst_passes_and_then_one_call_each_time_a_token_is_filled_in():
    now = 0.0
    limit = RateLimit(per_s=10, burst=3, clock=lambda: now)
    assert [limit.wait_s("a") for _ in range(3)] == [0.0, 0.0, 0.0]
    assert limit.wait_s("a") == 0.1
    assert limit.wait_s("b") == 0.0
    now = 0.1
    assert limit.wait_s("a") == 0.0
    assert limit.wait_s("a") > 0
    now = 100.0
    assert [limit.wait_s("a") for _ in range(4)][2:] == [0.0, 0.1]
