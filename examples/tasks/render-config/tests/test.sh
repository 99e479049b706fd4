#!/bin/bash
sed "s/@PORT@/$EXPECTED_PORT/" /tests/expected.conf > /tmp/expected.conf
reward=0
if diff /tmp/expected.conf /app/app.conf; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
