# A linear congruential generator, so that the file is the same with every awk.
BEGIN {
  x = 12345
  for (i = 1; i <= 400000; i++) {
    x = (x * 1103 + 12289) % 1000003
    printf "%07d ev%06d\n", (x * 7 + i) % 9999991, (i % 50 == 0) ? x % 1000 : i
  }
}
