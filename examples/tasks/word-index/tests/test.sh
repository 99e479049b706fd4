#!/bin/bash
# A fresh machine: the book is not here, and nothing that was changed outside the artifacts counts.
python3 /app/tool/index.py /tests/other.txt > /tmp/other.txt
reward=0
if [ ! -e /app/book.txt ] && diff /tests/expected.txt /app/index.txt && diff /tests/expected_other.txt /tmp/other.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
