"""Writes reward.json: one number for each part, and their mean."""

import csv
import json


def rows(path):
    try:
        with open(path, newline="") as file:
            return list(csv.DictReader(file))
    except (OSError, ValueError):
        return []


expected, found = rows("/tests/expected.csv"), rows("/app/clean.csv")


def right(*columns):
    pick = [[[row.get(column) for column in columns] for row in table] for table in (expected, found)]
    return float(pick[0] == pick[1])


rewards = {
    "sensors": right("sensor"),
    "times": right("time"),
    "values": right("value", "unit"),
    "rows": float(len(expected) == len(found)),
}
rewards["reward"] = sum(rewards.values()) / len(rewards)
with open("/logs/verifier/reward.json", "w") as file:
    json.dump(rewards, file)
