#!/bin/bash
cd /app/files
: > /app/lost.txt
while IFS= read -r line; do
  path=${line:66}
  echo "$line" | sha256sum -c --status 2> /dev/null && continue
  if (cd /app/backup && echo "$line" | sha256sum -c --status 2> /dev/null); then
    mkdir -p "$(dirname "$path")"
    cp "/app/backup/$path" "$path"
  else
    echo "$path" >> /app/lost.txt
  fi
done < /app/SHA256SUMS
LC_ALL=C sort -o /app/lost.txt /app/lost.txt
