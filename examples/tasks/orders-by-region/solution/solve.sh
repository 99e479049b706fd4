#!/bin/bash
cd /app
{
  echo region,orders,revenue
  awk -F, 'NR > 1 { count[$2] += 0; cents[$2] += 0 }
           NR > 1 && $5 != "cancelled" { count[$2]++; cents[$2] += $3 * $4 }
           END { for (region in count) printf "%s,%d,%.2f\n", region, count[region], cents[region] / 100 }' orders.csv \
    | LC_ALL=C sort
} > revenue.csv
