#!/bin/bash
cd /app
: > unmatched.tsv
while IFS= read -r line; do
  action=${line%%$'\t'*}
  entry=${line#*$'\t'}
  number=$(grep -n -x -F -m 1 -e "$entry" ledger.tsv | cut -d : -f 1)
  if [ "$action" = add ]; then echo "$entry" >> ledger.tsv
  elif [ -n "$number" ]; then sed -i "${number}d" ledger.tsv
  else echo "$entry" >> unmatched.tsv
  fi
done < corrections.tsv
LC_ALL=C sort -s -k1,1 -o ledger.tsv ledger.tsv
