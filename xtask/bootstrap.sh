#!/bin/sh
# What must be there before `cargo xtask` can be built: cargo, and a linker.
# Everything else is the business of `cargo xtask setup`.
set -eu

fail() {
    printf '%s\n' "$@" >&2
    exit 2
}

oldest=1.88

command -v cargo >/dev/null 2>&1 || fail \
    "cargo was not found: Baton needs Rust $oldest or later." \
    'Install it from https://rustup.rs, or, if it is installed, put it on the PATH: . "$HOME/.cargo/env"'

# `rustc 1.95.0 (…)`: compare major and minor as numbers.
version=$(rustc --version | cut -d' ' -f2)
minor=${version#*.}
minor=${minor%%.*}
if [ "${version%%.*}" -eq 1 ] && [ "$minor" -lt "${oldest#*.}" ]; then
    fail "Rust $version is too old: Baton needs $oldest or later." 'Update it: rustup update stable'
fi

if ! command -v cc >/dev/null 2>&1; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo 'Installing gcc: Rust links with it.'
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -y -qq --no-install-recommends gcc libc6-dev
    else
        fail 'No C compiler was found: Rust links with one.' \
            'Install it: sudo apt-get update && sudo apt-get install -y gcc libc6-dev'
    fi
fi

# Here and not in silence behind `cargo xtask`: the first time it takes a while.
cargo build --locked --package xtask
