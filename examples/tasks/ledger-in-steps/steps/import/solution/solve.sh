#!/bin/bash
cd /app
cat inbox/*.txt | awk '{
  date = $1; amount = $2
  sub(/^[^ ]+ [^ ]+ /, "")
  printf "%s\t%d\t%s\n", date, amount * 100 + (amount < 0 ? -0.5 : 0.5), $0
}' | LC_ALL=C sort -s -k1,1 > ledger.tsv
