#!/bin/sh
# After an installation or an upgrade, of both kinds of packages. The service is started by whoever wants it.
set -e
systemd-sysusers /usr/lib/sysusers.d/penstock.conf
systemd-tmpfiles --create /usr/lib/tmpfiles.d/penstock.conf || true
# No file of the package: every operator changes it, and each new example would have dpkg ask which of both he wants,
# or fail where nobody can be asked.
if [ ! -e /etc/penstock/penstock.toml ] && [ ! -L /etc/penstock/penstock.toml ]; then
    install -D -m 644 /usr/share/penstock/penstock.toml /etc/penstock/penstock.toml
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    # A mistake in the configuration is for journal and doctor to tell: dpkg would leave the package half installed.
    systemctl try-restart penstock.service || true
fi
