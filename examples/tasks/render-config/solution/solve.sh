#!/bin/bash
# perl leaves the inserted text alone, whatever is in it. GREETING shows that [solution.env] is set.
echo "greetings $GREETING"
perl -e '
  open my $file, "<", "/app/defaults.env" or die;
  while (<$file>) { chomp; $value{$1} = $2 if /^(\w+)=(.*)$/ }
  for (grep { /^APP_/ } keys %ENV) { $value{$_} = $ENV{$_} }
  open my $template, "<", "/app/app.conf.template" or die;
  while (<$template>) {
    s/\{\{(\w+)(\|lower)?\}\}/my $v = $value{$1} \/\/ ""; $2 ? lc $v : $v/ge;
    print;
  }' > /app/app.conf
