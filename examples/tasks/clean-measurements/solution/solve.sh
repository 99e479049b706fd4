#!/bin/bash
cd /app
python3 - << 'END'
import csv
import math
from datetime import datetime, timezone

CELSIUS = {"C": lambda v: v, "F": lambda v: (v - 32) / 1.8, "K": lambda v: v - 273.15}
seen = {}
for row in csv.DictReader(open("raw.csv", newline="")):
    sensor = row["sensor"].replace(" ", "").upper()
    if row["time"].isdigit():
        time = datetime.fromtimestamp(int(row["time"]), timezone.utc)
    else:
        time = datetime.fromisoformat(row["time"]).astimezone(timezone.utc)
    value = float(row["value"].replace(",", ".") or "nan")
    value = CELSIUS[row["unit"].upper()](value)
    if math.isnan(value) or value < -273.15 - 1e-9:
        continue
    seen.setdefault((sensor, f"{time:%Y-%m-%dT%H:%M:%SZ}"), value)
with open("clean.csv", "w", newline="") as file:
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["sensor", "time", "value", "unit"])
    for (sensor, time), value in sorted(seen.items()):
        writer.writerow([sensor, time, f"{value + 0.0:.2f}".replace("-0.00", "0.00"), "C"])
END
