#!/bin/bash
cd /app/files
printf 'docs/part 11.txt\ndocs/part 20.txt\n' > /tmp/lost.txt
sha256sum -c /app/SHA256SUMS 2> /dev/null | sed -n 's/: FAILED.*//p' | LC_ALL=C sort > /tmp/bad.txt
reward=0
if diff /tmp/lost.txt /app/lost.txt && diff /tmp/lost.txt /tmp/bad.txt && [ "$(cat 'docs/part 11.txt')" = oops ] \
  && [ "$(find . -type f | wc -l)" = 21 ]; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
