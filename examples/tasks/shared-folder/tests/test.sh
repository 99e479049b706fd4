#!/bin/bash
# As root: try what each user can do.
cd /
as() { runuser -u "$1" -- bash -c "$2" > /dev/null 2>&1; }
holds() { if as "$1" "$2"; then return 0; fi; echo "should work: $1: $2"; failed=1; }
fails() { if as "$1" "$2"; then echo "should not work: $1: $2"; failed=1; fi; }
failed=0
p=/srv/project
[ "$(stat -c %G $p $p/plan.txt $p/secret.txt $p/inbox | sort -u)" = team ] || { echo "groups"; failed=1; }
[ "$(stat -c %U $p/plan.txt $p/secret.txt $p/inbox | sort -u)" = dev ] || { echo "owners"; failed=1; }
holds ann "echo x > $p/by-ann && [ \$(stat -c %G $p/by-ann) = team ]"
fails guest "echo x > $p/by-guest"
holds ann "echo more >> $p/plan.txt"
holds guest "cat $p/plan.txt"
fails guest "echo more >> $p/plan.txt"
holds dev "cat $p/secret.txt && echo more >> $p/secret.txt"
fails ann "cat $p/secret.txt"
holds guest "echo x > $p/inbox/from-guest"
holds ann "echo x > $p/inbox/from-ann"
fails guest "ls $p/inbox"
fails ann "ls $p/inbox"
fails ann "rm -f $p/inbox/from-guest"
echo $((1 - failed)) > /logs/verifier/reward.txt
