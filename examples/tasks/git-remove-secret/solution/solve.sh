#!/bin/bash
set -e
cd /app/repo
export FILTER_BRANCH_SQUELCH_WARNING=1
git filter-branch -f --prune-empty --tag-name-filter cat \
  --index-filter 'git rm -q --cached --ignore-unmatch config/secret.env' -- --all
git for-each-ref --format='%(refname)' refs/original | xargs -n 1 git update-ref -d
git reflog expire --expire=now --all
git gc -q --prune=now
