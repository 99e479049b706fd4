cd /app || exit 1
calls() { sort .calls 2> /dev/null | tr '\n' ' '; rm -f .calls; echo; }
later() { touch -d "+$1 seconds" "$2"; }
make clean > /dev/null
rm -f .calls
echo "# first"; make -j8 > /dev/null; echo "exit $?"; calls; cat build/report.txt
echo "# again"; make -q; echo "exit $?"; calls
echo "# one changed"; sleep 1; echo w,5 >> data/a.csv; make -j8 > /dev/null; calls; cat build/report.txt; make -q; echo "exit $?"
echo "# script changed"; sleep 1; touch stats.sh; make > /dev/null; calls; make -q; echo "exit $?"
echo "# added"; sleep 1; printf 'name,value\nq,7\n' > data/c.csv; make > /dev/null; calls; cat build/report.txt
echo "# removed"; sleep 1; rm data/b.csv; make > /dev/null; calls; cat build/report.txt; make -q; echo "exit $?"
echo "# failing"; sleep 1; echo bad,x >> data/a.csv; make > /dev/null 2>&1; echo "exit $?"; ls build/a.stats 2> /dev/null
make > /dev/null 2>&1; echo "exit $?"
echo "# clean"; make clean > /dev/null; ls -d build 2> /dev/null
