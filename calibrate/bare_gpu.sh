#!/usr/bin/env bash
# A full calibration of a CUDA GPU on a machine that has python, torch, numpy and scipy, but no network.
#
#   calibrate/bare_gpu.sh pack FOLDER [PYTHON_VERSION]   where there is a network: gather the wheels
#   calibrate/bare_gpu.sh run FOLDER OUT [OPTIONS]       on the GPU: measure for at most 8.5 minutes
#
# FOLDER holds a few megabytes of wheels; OUT gets profiles, raw samples and summary.txt.
set -euo pipefail

pack() {
    local folder=$1 version=${2:-3.12} root
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
    mkdir -p "$folder"
    python3 -m pip wheel --quiet --no-deps --wheel-dir "$folder" "$root"
    # pydantic pins its core: let pip choose the pair, then take it for the other machine's Python.
    python3 -m pip download --quiet --only-binary=:all: --python-version "$version" \
        --implementation cp --abi "cp${version/./}" --abi abi3 --abi none \
        --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64 --platform any \
        --dest "$folder" pydantic nvidia-ml-py
    cp "${BASH_SOURCE[0]}" "$folder/"
    printf 'packed for Python %s: %s\n' "$version" "$(du -sh "$folder" | cut -f1)"
}

run() {
    local folder=$1 out=$2
    shift 2
    site=$(mktemp -d)  # not local: the trap outlives the function
    trap 'rm -rf "$site"' EXIT
    python3 -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$folder"/*.whl
    mkdir -p "$out"
    PYTHONPATH="$site" python3 -m roofcast.calibrate.gpu_calibration "$out" "$@"
}

case "${1:-}" in
    pack) pack "${@:2}" ;;
    run) run "${@:2}" ;;
    *) sed -n '2,7p' "${BASH_SOURCE[0]}" >&2; exit 2 ;;
esac
