#!/bin/bash
file=/home/kim/.profile_merged
reward=0
if diff /tests/expected.txt $file && [ "$(stat -c '%U %A' $file | cut -c 1-14)" = "kim -rw-------" ]; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
