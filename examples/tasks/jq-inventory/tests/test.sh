#!/bin/bash
for file in /app/hosts.json /tests/other.json; do jq -cS -f /app/summary.jq "$file"; done > /tmp/found.txt
echo '[]' | jq -cS -f /app/summary.jq >> /tmp/found.txt
reward=0
if diff /tests/expected.txt /tmp/found.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
