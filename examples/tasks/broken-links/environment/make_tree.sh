mkdir -p /app/data/img /app/site/sub/deep
echo logo > /app/data/img/logo.svg
echo text > '/app/data/read me.txt'
cd /app/site
ln -s /app/data-old/img/logo.svg logo.svg
ln -s '../data-old/read me.txt' 'read me.txt'
ln -s ../../../data-old/img sub/deep/img
ln -s /app/data-old/gone.txt sub/gone.txt
ln -s ../data-old/also-gone also-gone
ln -s /nowhere/else other
ln -s /app/data/img/logo.svg good.svg
ln -s /app/data-older/x older
echo plain > index.html
