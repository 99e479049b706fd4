#!/bin/bash
cd /app/repo
git config --global --add safe.directory '*'
log() { git log --reverse --format='%an %ad %s' --date=short "$1"; git ls-tree -r --name-only "$1"; }
{
  for name in main feature v1; do echo "# $name"; log "$name"; done
  git cat-file -t v1; git for-each-ref --format='%(contents:subject)' refs/tags
  git status --porcelain; git branch --show-current; git show main:app.py feature:bye.py main:config/app.toml
  git for-each-ref --format='%(refname)' refs/heads refs/tags
} > /tmp/found.txt 2>&1
leaked=$(git cat-file --batch-all-objects --batch --unordered --buffer | grep -a -c sk-live)
reward=0
if diff /tests/expected.txt /tmp/found.txt && [ "$leaked" = 0 ] && git fsck --strict 2>&1 && ! grep -rq sk-live .git; then reward=1; fi
echo $reward > /logs/verifier/reward.txt
