#!/bin/bash
# Runs the three queries on both databases.
sqlite3 /tmp/other.db < /tests/other.sql
for database in /app/shop.db /tmp/other.db; do
  for query in best idle growth; do
    echo "# $(basename "$database") $query"
    sqlite3 -readonly -csv "$database" < "/app/$query.sql" 2>&1 | tr -d '\r'
  done
done > /tmp/found.txt
reward=0
if diff /tests/expected.txt /tmp/found.txt; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
