#!/bin/bash
awk '$(NF-1) < 400 { seen[$1]++ } END { for (address in seen) print seen[address], address }' /app/access.log \
  | LC_ALL=C sort -k1,1nr -k2,2 | head -5 > /app/top.txt
