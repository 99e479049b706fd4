#!/bin/bash
cd /app/site
find . -type l -print0 | while IFS= read -r -d '' link; do
  target=$(readlink -- "$link")
  case $target in */data-old/*) ;; *) continue ;; esac
  ln -sfn -- "${target/\/data-old\//\/data\/}" "$link"
  [ -e "$link" ] || rm -- "$link"
done
