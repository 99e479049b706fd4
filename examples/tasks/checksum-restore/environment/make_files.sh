mkdir -p /app/files/docs /app/backup
cd /app/files
for n in $(seq 20); do echo "content $n" > "docs/part $n.txt"; done
echo top > top.bin
find . -type f -printf '%P\n' | LC_ALL=C sort | xargs -d '\n' sha256sum > /app/SHA256SUMS
cp -r . /app/backup
echo oops >> 'docs/part 3.txt'; echo oops > 'docs/part 11.txt'; rm 'docs/part 7.txt' top.bin; : > 'docs/part 20.txt'
rm '/app/backup/docs/part 11.txt'; echo bad > '/app/backup/docs/part 20.txt'; echo bad > '/app/backup/docs/part 1.txt'
