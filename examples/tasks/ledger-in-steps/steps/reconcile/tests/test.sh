#!/bin/bash
cat /app/ledger.tsv /app/unmatched.tsv > /tmp/found.txt
if diff /tests/expected.txt /tmp/found.txt; then echo 1; else echo 0; fi > /logs/verifier/reward.txt
