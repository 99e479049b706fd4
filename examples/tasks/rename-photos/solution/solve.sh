#!/bin/bash
# In two moves, because a new name may be another photo's old one.
set -eu
cd /app/photos
mkdir /app/renamed undated
find . -maxdepth 1 -type f -printf '%P\n' | LC_ALL=C sort | while IFS= read -r name; do
  day=$(awk -F '\t' -v name="$name" '$1 == name { print $2 }' /app/dates.tsv)
  if [ -z "$day" ]; then mv -- "$name" undated/; continue; fi
  number=$(find /app/renamed -name "${day}_*" | wc -l)
  mv -- "$name" "/app/renamed/${day}_$(printf '%02d' $((number + 1))).jpg"
done
mv /app/renamed/* .
rmdir /app/renamed
