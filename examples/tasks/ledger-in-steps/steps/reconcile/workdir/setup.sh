#!/bin/bash
printf 'drop\t2024-03-01\t-1250\tcoffee beans\n' > /app/corrections.tsv
printf 'add\t2024-03-02\t5000\tsalary, part two\n' >> /app/corrections.tsv
printf 'drop\t2024-03-09\t1\tnever there\n' >> /app/corrections.tsv
rm -f -- "$0"
