#!/bin/sh
# State and configuration stay when the package is removed; dpkg --purge takes them away, which rpm has no word for.
set -e
if [ "$1" = purge ]; then
    rm -rf /var/lib/penstock /etc/penstock /run/penstock
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
