set -u
work=$(mktemp -d)
cd "$work" || exit 1
backup=/app/backup.sh
contents() { tar tf "$1" --quoting-style=escape | sed 's,^\./,,' | grep -v '/$' | LC_ALL=C sort; }

mkdir -p 'my source/sub'
echo 1 > 'my source/a b.txt'; echo 2 > $'my source/new\nline'; echo 3 > 'my source/-dash'; echo 4 > "my source/sub/it's"
touch -d '2020-01-01' 'my source'/* 'my source/sub'/*
"$backup" "$work/my source" "$work/to here"; echo "exit $?"; contents 'to here/1.tar'
echo "# unchanged"; touch -d '2020-06-01' 'to here/stamp'; "$backup" "$work/my source" "$work/to here"; echo "exit $?"; ls 'to here'
date -r 'to here/stamp' +%F
echo "# changed"; echo 5 > 'my source/late'; touch -d '2021-01-01' 'my source/late'
"$backup" "$work/my source" "$work/to here"; echo "exit $?"; ls 'to here'; contents 'to here/2.tar'
[ "$(date -r 'to here/stamp' +%s)" -gt "$(date -d 2022-01-01 +%s)" ] && echo renewed
echo "# no source"; "$backup" "$work/missing" "$work/other" 2> /dev/null; echo "exit $?"; ls other 2> /dev/null
echo "# tar fails"; mkdir bin; printf '#!/bin/sh\n/bin/tar "$@"\nexit 2\n' > bin/tar; chmod +x bin/tar
PATH=$work/bin:$PATH "$backup" "$work/my source" "$work/third" 2> /dev/null; echo "exit $?"; ls third 2> /dev/null
echo "# meanwhile"; printf '#!/bin/sh\nsleep 1.2\n/bin/tar "$@"\necho more > "%s/my source/meanwhile"\n' "$work" > bin/tar
PATH=$work/bin:$PATH "$backup" "$work/my source" "$work/fourth"; echo "exit $?"
"$backup" "$work/my source" "$work/fourth"; contents fourth/2.tar
