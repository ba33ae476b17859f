#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests a wheel on a Debian 12 that has Python and pip, and no compiler: installs it, then runs the
# demo as an unprivileged user whose home cannot be written. Needs root and debootstrap.
#   release/bare_system.sh dist/NAME.whl
set -euo pipefail
wheel=$(realpath "$1")
root=$(mktemp -d)
chmod 755 "$root"  # the root folder of that user, too

clean_up() {
  umount "$root/proc" 2> /dev/null || true
  rm -rf --one-file-system "$root"
}
trap clean_up EXIT

debootstrap --variant=minbase --include=python3-venv,ca-certificates bookworm "$root" > /dev/null
mount -t proc proc "$root/proc"
cp /etc/resolv.conf "$root/etc/resolv.conf"
# The certificates by which this machine reaches its package index.
cp --remove-destination /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
cp "$wheel" "$root/tmp/"
chroot "$root" useradd --create-home somebody
chmod 555 "$root/home/somebody"

chroot "$root" python3 -m venv /opt/env
chroot "$root" /opt/env/bin/pip install --quiet --no-cache-dir "/tmp/$(basename "$wheel")"

as_somebody() {
  chroot --userspec=somebody "$root" env -i HOME=/home/somebody PATH=/opt/env/bin:/usr/bin:/bin \
    TF_CPP_MIN_LOG_LEVEL=3 "$@"
}

if as_somebody sh -c 'command -v c++ || command -v g++ || command -v clang++ || touch ~/file' \
  > /dev/null 2>&1; then
  echo "The system has a compiler or a home that can be written: it tests nothing." >&2
  exit 1
fi
as_somebody sh -c 'cd /tmp && tpu-estimator-embedding demo'
as_somebody tpu-estimator-embedding doctor > "$root/report"
grep "Kernels .*native .*, installed with the package" "$root/report"
