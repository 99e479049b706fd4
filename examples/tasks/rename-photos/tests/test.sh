#!/bin/bash
# Every file with its content, in one list.
cd /app/photos
find . -type f -printf '%P\n' | LC_ALL=C sort | while IFS= read -r name; do
  printf '%s %s\n' "$name" "$(cat -- "$name")"
done > /tmp/found.txt
reward=0
if diff /tests/expected.txt /tmp/found.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
