#!/bin/bash
set -e
cd /srv/project
chgrp -R team .
chmod 2775 .
chmod 664 plan.txt
chmod 600 secret.txt
chmod 1733 inbox
