#!/bin/sh
# State and configuration stay when the package is removed; dpkg --purge takes them away, which rpm has no word for.
set -e
if [ "$1" = remove ] || [ "$1" = 0 ]; then
    rm -rf /run/penstock  # nobody answers there, and advice in it would be followed for hours
    mkdir -p /opt  # dpkg takes it away with the last that lies in it
fi
if [ "$1" = purge ]; then
    rm -rf /etc/penstock /run/penstock /var/lib/penstock || true  # of what is mounted there, the folder stays
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
