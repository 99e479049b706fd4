#!/bin/bash
# 1 when every test passes, else 0.
cd /tests
reward=0
if python3 -m pytest -q -p no:cacheprovider test_outputs.py; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
