#!/bin/bash
# Incremental backup: backup.sh SOURCE TARGET
SOURCE=$1
TARGET=$2
NUMBER=`ls $TARGET/*.tar | wc -l`
FILES=`find $SOURCE -newer $TARGET/stamp`
tar cf $TARGET/$NUMBER.tar $FILES
touch $TARGET/stamp
exit 0
