#!/bin/sh
# Make the secrets that compose/control-plane.yml mounts, where they are missing. Never overwrites one.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets

random() { od -An -N32 -tx1 /dev/urandom | tr -d ' \n'; }
keep() { [ -e "secrets/$1" ] || printf '%s\n' "$2" >"secrets/$1"; }

keep postgres_password "$(random)"
keep database_url "postgres://openface:$(cat secrets/postgres_password)@postgres:5432/openface_metrics"
keep secret_key "$(random)"
keep lease_keys "k1:$(random)"
keep encryption_keys "k1:$(random)"
# Only we may enter the directory; in a container, where just the file is mounted, the program's own account reads it.
chmod 700 secrets
chmod 444 secrets/*
