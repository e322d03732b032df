#!/usr/bin/env bash
# Installs the Debian packages that are missing, and nothing where none is:
#   scripts/prepare.sh [PACKAGE...]      default: all that building and serving need
# Needs root or sudo to install; without them it prints the one command to run and exits with 1.
set -euo pipefail

# Whether what a package is wanted for is there, wherever it came from.
there() {
    case $1 in
        build-essential) command -v cc > /dev/null && command -v make > /dev/null ;;
        libfabric1) PATH=$PATH:/usr/sbin:/sbin ldconfig -p 2> /dev/null | grep -q 'libfabric\.so\.1 ' ;;
        systemd) command -v systemd-analyze > /dev/null ;;
        chromium-driver) command -v chromedriver > /dev/null ;;
        python3-pip) python3 -m pip --version > /dev/null 2>&1 ;;
        *) command -v "$1" > /dev/null ;;
    esac
}

wanted=("$@")
[[ ${#wanted[@]} -gt 0 ]] || wanted=(build-essential libfabric1 curl)

if ! command -v cargo > /dev/null; then
    echo "prepare: cargo is missing: install rustup, which then fetches the pinned toolchain" >&2
    exit 1
fi

missing=()
for package in "${wanted[@]}"; do
    there "$package" || missing+=("$package")
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

install="apt-get install --yes --no-install-recommends ${missing[*]}"
if ! command -v apt-get > /dev/null; then
    echo "prepare: missing, by their Debian names: ${missing[*]}; install them and try again" >&2
    exit 1
elif [[ $(id -u) -eq 0 ]]; then
    as_root=()
elif command -v sudo > /dev/null && { [[ -t 0 ]] || sudo --non-interactive true 2> /dev/null; }; then
    as_root=(sudo)
else
    echo "prepare: missing: ${missing[*]}; as root, run: apt-get update && $install" >&2
    exit 1
fi

echo "prepare: installing ${missing[*]}" >&2
"${as_root[@]}" apt-get update --quiet=2 >&2
# shellcheck disable=SC2086 # the words of the command
DEBIAN_FRONTEND=noninteractive "${as_root[@]}" $install >&2
for package in "${missing[@]}"; do
    if ! there "$package"; then
        echo "prepare: $package was installed, and what it should bring is still missing" >&2
        exit 1
    fi
done
