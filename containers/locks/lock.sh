#!/usr/bin/env bash
# Recompute the lock files from pyproject.toml. Needs a package index; run by `make lock` only.
# All locks are cut from one resolution (dev.lock), so they can never disagree on a version.
set -euo pipefail
cd "$(dirname "$0")/../.."
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
sh containers/python.sh -m venv "$tool/venv"
"$tool/venv/bin/pip" -q install --require-hashes -r containers/locks/uv.pin
compile() { # NAME UV-ARGUMENTS...
  local name=$1; shift
  "$tool/venv/bin/uv" pip compile -q --python-version 3.11 --generate-hashes --no-emit-index-url \
    --custom-compile-command "make lock" "$@" -o "containers/locks/$name.lock"
}
compile dev pyproject.toml --group ranks --group build --group dev
compile login pyproject.toml -c containers/locks/dev.lock
compile ranks --group ranks -c containers/locks/dev.lock
compile build --group build -c containers/locks/dev.lock
# the GPU image has ranks.lock, too: gpu.lock holds only what differs (TensorFlow, CUDA, NCCL)
mapfile -t shared < <(sed -nE 's/^([a-z0-9_.-]+)==.*/--no-emit-package=\1/p' containers/locks/ranks.lock)
compile gpu --group gpu -c containers/locks/dev.lock "${shared[@]}"
compile cuda --group cuda
