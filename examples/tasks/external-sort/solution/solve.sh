#!/bin/bash
cd /app
cut -d ' ' -f 2 events.txt | LC_ALL=C sort -S 8M | uniq -c | awk '$1 > 1 { print $2, $1 }' > duplicates.txt
LC_ALL=C sort -S 8M -k1,1n -k2,2 events.txt | sed -n 1p > first.txt
