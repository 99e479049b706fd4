# Each case prints its name and what it found; compared with expected.txt.
set -u
rotate=/app/rotate.sh
work=$(mktemp -d)
cd "$work" || exit 1

show() { for file in *; do [ -f "$file" ] && printf '%s: %s\n' "$file" "$(case $file in *.gz) gzip -dc "$file";; *) cat "$file";; esac)"; done; rm -f ./*; }

echo "# first"; echo a > app.log; "$rotate" app.log 3; echo "exit $?"; show
echo "# blanks"; echo a > 'my app.log'; "$rotate" "$work/my app.log" 2; echo "exit $?"; show
echo "# empty"; : > app.log; "$rotate" app.log 3; echo "exit $?"; show
echo "# missing"; "$rotate" app.log 3; echo "exit $?"; show
echo "# twelve"; for n in $(seq 12); do echo "$n" > app.log; "$rotate" app.log 11; done; show | LC_ALL=C sort
echo "# gap"; echo x | gzip > app.log.4.gz; echo y > app.log; "$rotate" app.log 5; show
echo "# refuse"; echo a > app.log; for keep in 0 -1 two ''; do "$rotate" app.log "$keep" 2> /dev/null; echo "exit $?"; done; show
echo "# same file"; echo a > app.log; chmod 640 app.log; ln app.log other; "$rotate" app.log 1; stat -c '%a %s' other; show
