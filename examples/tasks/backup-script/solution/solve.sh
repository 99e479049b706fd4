#!/bin/bash
cat > /app/backup.sh << 'END'
#!/bin/bash
# Incremental backup: backup.sh SOURCE TARGET
set -u
source=$1
target=$2
[ -d "$source" ] || exit 1
mkdir -p -- "$target" || exit 1
target=$(cd -- "$target" && pwd) || exit 1
list=$(mktemp) || exit 1
started=$(mktemp) || exit 1
trap 'rm -f -- "$list" "$started"' EXIT
newer=()
if [ -e "$target/stamp" ]; then newer=(-newer "$target/stamp"); fi
cd -- "$source" || exit 1
find . -type f "${newer[@]}" -print0 > "$list" || exit 1
[ -s "$list" ] || exit 0
number=1
while [ -e "$target/$number.tar" ]; do number=$((number + 1)); done
if ! tar cf "$target/$number.tar" --null --no-recursion -T "$list"; then
  rm -f -- "$target/$number.tar"
  exit 1
fi
touch -r "$started" "$target/stamp"
END
