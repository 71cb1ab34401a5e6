#!/bin/sh
# Before a first installation: dpkg says "install", rpm how many versions there will be. An environment of pip's would
# be mixed with that of the package and lost with it, and units in /usr/local would hide those of the package.
set -e
if [ "$1" = install ] || [ "$1" = 1 ]; then
    for place in /opt/penstock/pyvenv.cfg /usr/local/lib/systemd/system/penstock.service; do
        if [ -e "$place" ]; then
            echo "penstock was put here without a package ($place): run \`penstock service uninstall\`, which keeps" \
                "configuration and state, and remove /opt/penstock; then install the package" >&2
            exit 1
        fi
    done
fi
