# Builds the repository, with the same commits each time.
set -e
git config --system user.name 'Ann Lee'
git config --system user.email ann@example.org
git config --system init.defaultBranch main
git config --system advice.detachedHead false
day=1
commit() {
  git add -A
  export GIT_AUTHOR_DATE="2024-01-$(printf %02d $day)T12:00:00Z" GIT_COMMITTER_DATE="2024-01-$(printf %02d $day)T12:00:00Z"
  git commit -q -m "$1"
  day=$((day + 1))
}
git init -q /app/repo
cd /app/repo
echo 1.0.0 > VERSION
printf 'retries = 0\nhost = a\nport = 1\nuser = b\npath = c\ntimeout = 3\n' > settings.txt
printf 'one\ntwo\nthree\n' > words.txt
commit "feat: start"
git tag v1.0
git branch release-1
echo 'colour = blue' >> settings.txt; commit "feat: colours"
sed -i 's/timeout = 3/timeout = 30/' settings.txt; commit "fix: wait longer"
sed -i 's/^two$/2/' words.txt; commit "feat: digits"
sed -i 's/^three$/three!/; s/^2$/2!/' words.txt; commit "fix: shout"
sed -i 's/retries = 0/retries = 5/' settings.txt; commit "fix: try again"
echo extra > extra.txt; commit "feat: extra"
git checkout -q release-1
git cherry-pick -x main~1 > /dev/null
git checkout -q main
