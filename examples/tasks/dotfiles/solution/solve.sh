#!/bin/bash
cd ~
umask 077
cat old.sh new.sh | awk '
  /^(export|alias) / { split($2, part, "="); line[$1 " " part[1]] = $0 }
  /^unset / { delete line["export " $2] }
  /^unalias / { delete line["alias " $2] }
  END { for (key in line) print (key ~ /^export/ ? 0 : 1) "\t" key "\t" line[key] }' \
  | LC_ALL=C sort | cut -f 3 > .profile_merged
