#!/bin/bash
awk '{ seen[$2]++ } END { for (id in seen) if (seen[id] > 1) print id, seen[id] }' /app/events.txt | LC_ALL=C sort > /tmp/duplicates.txt
LC_ALL=C sort -k1,1n -k2,2 /app/events.txt | head -1 > /tmp/first.txt
reward=0
if diff -q /tmp/duplicates.txt /app/duplicates.txt && diff /tmp/first.txt /app/first.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
