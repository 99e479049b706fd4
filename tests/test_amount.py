from drydock.amount import amount


def test_a_noun_follows_its_number():
    assert [amount(number, "step") for number in (0, 1, 2)] == ["0 steps", "1 step", "2 steps"]
    assert [amount(number, "pass", "passes") for number in (1, 3)] == ["1 pass", "3 passes"]
