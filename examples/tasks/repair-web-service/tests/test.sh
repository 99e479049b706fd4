#!/bin/bash
# Whatever ran is started anew, from the files.
/app/ctl stop
sleep 0.3
/app/ctl start
for _ in $(seq 50); do /app/ctl ping && break; sleep 0.2; done
cd /tests
reward=0
if timeout 60 python3 -m pytest -q -p no:cacheprovider test_outputs.py; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
