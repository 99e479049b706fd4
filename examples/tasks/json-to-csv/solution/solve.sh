#!/bin/bash
cd /app
python3 - << 'END'
import csv
import json

rows, rejected = {}, []


def flat(value, name):
    if isinstance(value, dict):
        return {inner: text for key in value for inner, text in flat(value[key], f"{name}.{key}" if name else key).items()}
    if isinstance(value, list):
        return {name: "|".join(map(str, value))}
    if isinstance(value, bool):
        return {name: "yes" if value else "no"}
    return {name: "" if value is None else value}


for line in open("users.jsonl"):
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if isinstance(record, dict):
        rows[record["id"]] = flat(record, "")
    else:
        rejected.append(line)
columns = sorted({name for row in rows.values() for name, text in row.items() if name != "id" and not (name == "address" and text == "")})
with open("users.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, ["id", *columns], lineterminator="\n", extrasaction="ignore")
    writer.writeheader()
    writer.writerows(rows[key] for key in sorted(rows))
open("rejected.txt", "w").writelines(rejected)
END
