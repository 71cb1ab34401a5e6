#!/bin/sh
# dpkg says "remove" or "upgrade", rpm how many versions will be left.
set -e
if { [ "$1" = remove ] || [ "$1" = 0 ]; } && [ -d /run/systemd/system ]; then
    systemctl disable --now penstock.service penstock.socket || true
fi
