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
write() {
  # write FAULTY BROKEN NUMBER: the program with or without the fault, able to run or not.
  middle='(values[half - 1] + values[half]) / 2'
  if [ "$1" = yes ]; then middle='values[half - 1] + values[half] / 2'; fi
  cat > stats.py << END
import sys

VERSION = $3


def median(values):
    values = sorted(values)
    half = len(values) // 2
    if len(values) % 2:
        return values[half]
    return $middle


if sys.argv[1] == "--version":
    print(VERSION)
else:
    print(median([float(word) for word in open(sys.argv[1]).read().split()]))
END
  if [ "$2" = yes ]; then echo 'raise SystemExit("not yet"' >> stats.py; fi
}
for n in $(seq 1 24); do
  faulty=no; broken=no
  if [ "$n" -ge 15 ]; then faulty=yes; fi
  case $n in 7|13|14|18) broken=yes ;; esac
  write $faulty $broken "$n"
  commit "Version $n"
  if [ "$n" = 3 ]; then git tag good; fi
done
