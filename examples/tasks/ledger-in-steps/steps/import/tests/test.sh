#!/bin/bash
# 1 when the file is as expected, else 0.
reward=0
if diff /tests/expected.txt /app/ledger.tsv; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
