"""Writes reward.json."""

import json
import shutil
import sqlite3
import subprocess

PEOPLE = {
    1: ("Ann", "Lee", "1980-02-03", ["+497311234", "0170555"]),
    2: ("Juan Carlos de la", "Cruz", "1999-12-31", []),
    5: ("", "Plato", None, []),
    9: ("Eve", "O'Hara", None, ["1", "2"]),
}
OTHER = {3: ("Kim", "Li", "2001-01-09", ["+1", "23"]), 4: ("A B", "C", None, ["7"])}


def old(path, rows):
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE people (id INTEGER PRIMARY KEY, full_name TEXT, phones TEXT, born TEXT)")
        db.executemany("INSERT INTO people VALUES (?, ?, ?, ?)", rows)


def migrate(path):
    return subprocess.run(["/app/migrate.sh", path], timeout=20).returncode


def contents(path):
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (2,)
    assert {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")} == {"person", "phone"}
    db.execute("PRAGMA foreign_keys = ON")
    people = {}
    for key, first, last, born in db.execute("SELECT id, first_name, last_name, born FROM person"):
        numbers = [n for (n,) in db.execute("SELECT number FROM phone WHERE person_id = ? ORDER BY number", (key,))]
        people[key] = (first, last, born, numbers)
    counted = db.execute("SELECT count(*) FROM phone").fetchone()[0]
    assert counted == sum(len(one[3]) for one in people.values())
    db.execute("DELETE FROM person")
    assert db.execute("SELECT count(*) FROM phone").fetchone() == (0,)
    db.rollback()
    db.close()
    return people


def migrated():
    return contents("/app/people.db") == PEOPLE


def other():
    old("/tmp/other.db", [(3, "Kim Li", "+1,,2 3;", "09.01.2001"), (4, "A B C", "tel: 7", "1.1.2001")])
    return migrate("/tmp/other.db") == 0 and contents("/tmp/other.db") == OTHER


def twice():
    shutil.copy("/app/people.db", "/tmp/twice.db")
    return migrate("/tmp/twice.db") == 0 and contents("/tmp/twice.db") == PEOPLE


def atomic():
    rows = [(1, "Ann Lee", "1", None), (2, "  ", "2", None)]
    old("/tmp/atomic.db", rows)
    status = migrate("/tmp/atomic.db")
    db = sqlite3.connect("/tmp/atomic.db")
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    same = db.execute("SELECT * FROM people").fetchall() == rows
    return status != 0 and tables == ["people"] and same


rewards = {}
for part in (migrated, other, twice, atomic):
    try:
        rewards[part.__name__] = float(part())
    except (AssertionError, OSError, sqlite3.Error, subprocess.TimeoutExpired) as error:
        print(f"{part.__name__}: {error!r}")
        rewards[part.__name__] = 0.0
rewards["reward"] = float(all(rewards.values()))
with open("/logs/verifier/reward.json", "w") as file:
    json.dump(rewards, file)
