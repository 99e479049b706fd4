#!/bin/bash
set -e
cd /app/repo
cat > /tmp/check.sh << 'END'
echo "1 3" > /tmp/numbers
found=$(python3 stats.py /tmp/numbers 2> /dev/null) || exit 125
[ "$found" = 2.0 ]
END
git bisect start main good > /dev/null
git bisect run sh /tmp/check.sh > /tmp/bisect.log || true
# Where broken commits stand before the faulty one, bisect names several; the last of them runs and is wrong.
first=$(git log --reverse --format=%H good..main | while read -r commit; do
  git checkout -q "$commit"
  status=0; sh /tmp/check.sh || status=$?
  if [ $status = 1 ]; then echo "$commit"; break; fi
done)
git bisect reset > /dev/null 2>&1
git checkout -q main
echo "$first" > /app/answer.txt
sed -i 's|return values\[half - 1\] + values\[half\] / 2|return (values[half - 1] + values[half]) / 2|' stats.py
git commit -q -a -m "Repair the median"
