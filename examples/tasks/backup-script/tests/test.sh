#!/bin/bash
timeout 30 bash /tests/cases.sh > /tmp/found.txt
reward=0
if diff /tests/expected.txt /tmp/found.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
