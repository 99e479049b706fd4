# Prints: name of the file, sum of its values.
echo "$(basename "$1" .csv)" >> .calls
awk -F, -v name="$(basename "$1" .csv)" '
  NR > 1 && $2 !~ /^-?[0-9]+$/ { exit failed = 1 }
  NR > 1 { sum += $2 }
  END { print name, sum + 0; exit failed }' "$1"
