#!/bin/bash
cd /app/site
find . -type l -printf '%P %l\n' | LC_ALL=C sort > /tmp/found.txt
reward=0
if diff /tests/expected.txt /tmp/found.txt && [ "$(cat index.html)" = plain ]; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
