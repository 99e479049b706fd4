import sys
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

sys.path.insert(0, "/app")
from meetings import local, occurrences, overlap

UTC = timezone.utc


def hours(instants):
    assert all(one.utcoffset() == timedelta(0) for one in instants)
    return [f"{one:%m-%d %H:%M}" for one in instants]


def test_same_local_time_when_clocks_go_forward():
    assert hours(occurrences(datetime(2024, 3, 24, 9), "Europe/Berlin", 3)) == ["03-24 08:00", "03-31 07:00", "04-07 07:00"]


def test_same_local_time_when_clocks_go_back():
    assert hours(occurrences(datetime(2024, 10, 27, 9), "America/New_York", 2)) == ["10-27 13:00", "11-03 14:00"]


def test_local_time_that_does_not_exist():
    assert hours(occurrences(datetime(2024, 3, 24, 2, 30), "Europe/Berlin", 3)) == ["03-24 01:30", "03-31 01:30", "04-07 00:30"]
    assert local(occurrences(datetime(2024, 3, 31, 2, 30), "Europe/Berlin", 1)[0], "Europe/Berlin") == "2024-03-31 03:30"


def test_local_time_that_occurs_twice():
    assert hours(occurrences(datetime(2024, 10, 27, 2, 30), "Europe/Berlin", 1)) == ["10-27 00:30"]


def test_half_hour_zone():
    assert hours(occurrences(datetime(2024, 1, 1, 10), "Asia/Kolkata", 1)) == ["01-01 04:30"]


def test_local():
    assert local(datetime(2024, 1, 1, 23, 30, tzinfo=UTC), "Asia/Tokyo") == "2024-01-02 08:30"
    assert local(datetime(2024, 7, 1, 12, 0, tzinfo=ZoneInfo("Asia/Tokyo")), "Europe/London") == "2024-07-01 04:00"


def test_overlap():
    at = datetime(2024, 6, 1, 12, 0, tzinfo=UTC)
    berlin = at.astimezone(ZoneInfo("Europe/Berlin"))
    tokyo = at.astimezone(ZoneInfo("Asia/Tokyo"))
    assert overlap(berlin, 30, tokyo, 30)
    assert overlap(berlin, 60, tokyo + timedelta(minutes=59), 5)
    assert not overlap(berlin, 60, tokyo + timedelta(minutes=60), 5)
    assert not overlap(tokyo + timedelta(minutes=60), 5, berlin, 60)


def test_overlap_over_a_change_of_clocks():
    start = datetime(2024, 3, 31, 1, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert not overlap(start, 60, datetime(2024, 3, 31, 1, 30, tzinfo=UTC), 30)
    assert overlap(start, 61, datetime(2024, 3, 31, 1, 30, tzinfo=UTC), 30)
