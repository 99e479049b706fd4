from pathlib import Path

EXPECTED = """id,active,address.city,address.geo.lat,address.geo.lon,address.zip,name,score,tags
2,yes,,,,,Bob,,
3,no,Köln,50.94,6.96,,"Zoë, the third",,
10,,Ulm,,,0123,Ann,,a|b
11,,,,,,"two
lines",1.5,
"""


def test_rows():
    assert Path("/app/users.csv").read_bytes().decode() == EXPECTED


def test_rejected():
    assert Path("/app/rejected.txt").read_text() == "not json\n[1, 2]\n"
