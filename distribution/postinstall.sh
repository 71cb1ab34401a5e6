#!/bin/sh
# After an installation or an upgrade, of both kinds of packages. The service is started by whoever wants it.
set -e
systemd-sysusers /usr/lib/sysusers.d/penstock.conf
systemd-tmpfiles --create /usr/lib/tmpfiles.d/penstock.conf || true
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # A mistake in the configuration is for journal and doctor to tell: dpkg would leave the package half installed.
    systemctl try-restart penstock.service || true
fi
