#!/bin/sh
# dpkg says "remove" or "upgrade", rpm how many versions will be left.
set -e
if [ "$1" = remove ] || [ "$1" = 0 ]; then
    # What probes left outside is known to the state alone, and removed by the commands alone: the daemon's own first,
    # for the unit may have given it credentials.
    if [ -e /var/lib/penstock/penstock.db ]; then
        setpriv --reuid penstock --regid penstock --clear-groups timeout 120 penstock leftovers remove ||
            echo "penstock: \`penstock leftovers remove\` has more to do, and it goes with the package" >&2
    fi
    if [ -d /run/systemd/system ]; then
        systemctl disable --now penstock.service penstock.socket || true
    fi
fi
