#!/bin/bash
timeout 40 bash /tests/cases.sh > /tmp/found.txt 2> /dev/null
reward=0
if diff /tests/expected.txt /tmp/found.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
