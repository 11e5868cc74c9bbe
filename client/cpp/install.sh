#!/usr/bin/env bash
# Installs the C++ client into a prefix: headers, the shared library, a pkg-config file. deploy/setup.sh calls it.
#
#   client/cpp/install.sh PREFIX LIBRARY TVM_FFI
#     LIBRARY  libinlay_client.so as Bazel built it
#     TVM_FFI  folder of the package tvm_ffi: include/, lib/libtvm_ffi.so
set -euo pipefail
(($# == 3)) || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
prefix=$(realpath -m "$1") library=$2 tvm_ffi=$(realpath "$3")
here=$(cd "$(dirname "$0")" && pwd)

# put FILE PLACE: under a name of its own and then renamed, so that a running program keeps its file.
put() {
  cmp -s "$1" "$2" && return
  install -m 644 "$1" "$2.part.$$"
  mv -f "$2.part.$$" "$2"
}

mkdir -p "$prefix/include/inlay" "$prefix/lib/pkgconfig"
for header in "$here"/inlay/*.h; do put "$header" "$prefix/include/inlay/${header##*/}"; done
# Found from where it is installed, not from where it was built: libtvm_ffi, and libraries that compiled models need.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
install -m 755 "$library" "$work/libinlay_client.so"
patchelf --set-rpath '$ORIGIN' "$work/libinlay_client.so"
put "$work/libinlay_client.so" "$prefix/lib/libinlay_client.so"
ln -sfn "$tvm_ffi/lib/libtvm_ffi.so" "$prefix/lib/libtvm_ffi.so"
sed -e "s|@PREFIX@|$prefix|; s|@TVM_FFI@|$tvm_ffi|" "$here/inlay.pc.in" >"$work/inlay.pc"
put "$work/inlay.pc" "$prefix/lib/pkgconfig/inlay.pc"
