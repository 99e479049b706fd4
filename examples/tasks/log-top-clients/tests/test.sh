#!/bin/bash
# Counts again, another way, and compares.
awk '$(NF-1) < 400 { print $1 }' /app/access.log | LC_ALL=C sort | uniq -c \
  | LC_ALL=C sort -k1,1nr -k2,2 | head -5 | awk '{ print $1, $2 }' > /tmp/expected.txt
reward=0
if diff /tmp/expected.txt /app/top.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
