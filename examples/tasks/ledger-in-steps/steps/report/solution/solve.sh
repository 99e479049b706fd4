#!/bin/bash
awk -F '\t' '
  { if ($1 != date) { show() } date = $1; cents += $2 }
  function show() {
    if (date == "") return
    printf "%s %.2f\n", date, cents / 100
    if (low == "" || cents < lowest) { low = date; lowest = cents }
  }
  END { show(); printf "low %s %.2f\n", low, lowest / 100 }' /app/ledger.tsv > /app/report.txt
