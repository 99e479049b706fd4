#!/bin/bash
cd /tests
reward=0
if python3 - << 'END'; then reward=1; fi
import json
from pathlib import Path

booked = json.loads(Path("/opt/calendar/bookings.json").read_text())
wanted = json.loads(Path("before.json").read_text()) + json.loads(Path("expected.json").read_text())
for booking in booked:
    print("booked:", booking)
by_text = lambda bookings: sorted(json.dumps(one, sort_keys=True) for one in bookings)
assert by_text(booked) == by_text(wanted)
END
echo $reward > /logs/verifier/reward.txt
