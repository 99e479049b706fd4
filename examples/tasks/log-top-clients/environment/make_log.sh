# 1500 lines that are the same each time.
awk 'BEGIN {
  split("200 200 301 404 500 204", status, " ")
  for (i = 1; i <= 1500; i++) {
    host = (i * i + 3 * i) % 23
    printf "10.0.%d.%d - - [01/Mar/2024:10:%02d:%02d +0000] \"GET /page/%d HTTP/1.1\" %s %d\n",
      host % 3, host, (i / 60) % 60, i % 60, i % 40, status[(i * 7) % 6 + 1], (i * 37) % 4000
  }
}'
