#!/bin/bash
reward=0
if diff /tests/expected.txt /app/clean.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
