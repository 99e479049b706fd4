#!/bin/bash
cd /app/repo
{
  git log --reverse --format='%s %ad' --date=short release-1 | sed 's/^\(release: .*\) .*/\1/'
  echo "files: $(git ls-tree --name-only release-1 | tr '\n' ' ' | sed 's/ $//')"
  for file in VERSION settings.txt words.txt; do echo "$file: $(git show "release-1:$file" | tr '\n' ' ' | sed 's/ $//')"; done
  echo "tag: $(git cat-file -t v1.0.1), $([ "$(git rev-parse 'v1.0.1^{commit}')" = "$(git rev-parse release-1)" ] && echo at the tip)"
  echo "main: $(git log -1 --format=%s main)"
} > /tmp/found.txt 2>&1
picked=$(git log --format=%b release-1 | grep -c '^(cherry picked from commit [0-9a-f]\{40\})$')
reward=0
if diff /tests/expected.txt /tmp/found.txt && [ "$picked" = 3 ]; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
