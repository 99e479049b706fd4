#!/bin/bash
cat > /app/Makefile << 'END'
names := $(sort $(basename $(notdir $(wildcard data/*.csv))))
stats := $(names:%=build/%.stats)

.DELETE_ON_ERROR:
.PHONY: all clean

all: build/report.txt

# The list of names is a file that changes only when the names do.
ifneq ($(MAKECMDGOALS),clean)
$(shell mkdir -p build; echo '$(names)' | cmp -s - build/names || echo '$(names)' > build/names)
endif

build/report.txt: $(stats) build/names
	awk '{ print; sum += $$2 } END { print "total", sum + 0 }' /dev/null $(stats) > $@

build/%.stats: data/%.csv stats.sh
	sh stats.sh $< > $@

clean:
	rm -rf build
END
