# Twelve small files with names that need quoting.
mkdir -p /app/photos
cd /app/photos
printf 'one' > IMG_0003.jpg
printf 'two' > IMG_0001.jpg
printf 'three' > 'holiday (2).JPG'
printf 'four' > 'holiday (1).JPG'
printf 'five' > -dash.jpg
printf 'six' > 'two  blanks.jpg'
printf 'seven' > 2024-01-05_01.jpg
printf 'eight' > $'quote\'s.jpg'
printf 'nine' > lost.jpg
printf 'ten' > 'lost too.JPG'
{
  printf 'IMG_0003.jpg\t2024-01-05\nIMG_0001.jpg\t2024-01-05\n'
  printf 'holiday (2).JPG\t2024-07-14\nholiday (1).JPG\t2024-07-14\n'
  printf '%s\t2024-01-06\n' '-dash.jpg' 'two  blanks.jpg'
  printf '2024-01-05_01.jpg\t2024-07-14\n'
  printf "quote's.jpg\t2024-01-06\n"
} > /app/dates.tsv
