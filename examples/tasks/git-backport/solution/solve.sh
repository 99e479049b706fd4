#!/bin/bash
cd /app/repo
git checkout -q release-1
for subject in "fix: wait longer" "fix: shout"; do
  commit=$(git log --format=%H --grep="^$subject\$" main)
  git cherry-pick -x "$commit" > /dev/null 2>&1 && continue
  # The two that conflict: only what the fix itself changes.
  git checkout -q --ours .
  case $subject in
    *longer) sed -i 's/^timeout = 3$/timeout = 30/' settings.txt ;;
    *shout) sed -i 's/^two$/two!/; s/^three$/three!/' words.txt ;;
  esac
  git add -A
  git -c core.editor=true cherry-pick --continue > /dev/null
done
echo 1.0.1 > VERSION
git commit -q -a -m "release: 1.0.1"
git tag -a v1.0.1 -m "Version 1.0.1"
