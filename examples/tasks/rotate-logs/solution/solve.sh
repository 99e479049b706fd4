#!/bin/bash
cat > /app/rotate.sh << 'END'
#!/bin/bash
file=$1
keep=$2
[[ $keep =~ ^[1-9][0-9]*$ ]] || exit 2
[ -s "$file" ] || exit 0
numbers() { for each in "$file".*.gz; do n=${each#"$file".}; n=${n%.gz}; [[ $n =~ ^[0-9]+$ ]] && echo "$n"; done | sort -nr; }
for n in $(numbers); do mv -- "$file.$n.gz" "$file.$((n + 1)).gz"; done
gzip -c -- "$file" > "$file.1.gz"
: > "$file"
for n in $(numbers); do if [ "$n" -gt "$keep" ]; then rm -- "$file.$n.gz"; fi; done
exit 0
END
chmod +x /app/rotate.sh
