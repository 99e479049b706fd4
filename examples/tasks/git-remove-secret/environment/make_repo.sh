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
mkdir config
echo 'print("hello")' > app.py; commit "Start"
echo 'KEY=sk-live-1111' > config/secret.env; echo 'debug = false' > config/app.toml; commit "Add configuration"
echo 'KEY=sk-live-2222' > config/secret.env; commit "Renew the key"
echo 'print("hello, world")' > app.py; commit "Greet the world"
GIT_COMMITTER_DATE=2024-01-05T00:00:00Z git tag -a v1 -m "First release"
git checkout -q -b feature
echo 'print("bye")' > bye.py; commit "Say goodbye"
git checkout -q main
git rm -q config/secret.env; echo 'secret.env' > .gitignore; commit "Remove the key from the tree"
echo '# demo' > README.md; commit "Add a readme"
