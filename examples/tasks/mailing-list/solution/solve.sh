#!/bin/bash
cd /app
grep -v '^ *#' raw.txt | sed -E 's/.*<([^>]*)>.*/\1/; s/^[[:space:]]+//; s/[[:space:]]+$//' \
  | tr '[:upper:]' '[:lower:]' | grep -E '^[^@ ]+@[^@ ]*\.[^@ ]*$' | LC_ALL=C sort -u > clean.txt
