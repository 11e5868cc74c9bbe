#!/usr/bin/env bash
# Installs and builds everything on a bare Debian 12: apt packages, .venv, the daemon and its workers, the CLI.
# Run it again whenever you like: what is done is skipped, what changed is rebuilt.
#
#   deploy/setup.sh [--examples] [--dev] [--bench] [--no-build]
#     --examples  also what deploy/quickstart.sh needs (onnxruntime, MiniLM's weights and tokenizer)
#     --dev       also what deploy/test.sh needs (pytest, ruff, mypy, clang-format); implies --examples
#     --bench     also peers and model sources of `inlay bench` (openvino, torch, transformers, timm, IREE: about 1.3 GB)
#     --no-build  only packages and .venv
#
# Environment: PYTHON (default python3, 3.11 or newer), INLAY_JOBS (default: cores).
set -Eeuo pipefail
cd "$(dirname "$0")/.."
root=$PWD
readonly root
readonly VENV=$root/.venv
readonly LIBEXEC=$VENV/libexec/inlay
readonly CACHE=${XDG_CACHE_HOME:-$HOME/.cache}/inlay

APT_PACKAGES=(
  # Bazel 4.2.3 and the rules that WORKSPACE names
  bazel-bootstrap bazel-platforms bazel-rules-java bazel-rules-proto bazel-skylib
  build-essential lld-19
  # C++ libraries (deploy/bazel/sys.BUILD, llvm.BUILD)
  libabsl-dev libbenchmark-dev libcpp-httplib-dev libgmock-dev libgrpc++-dev libgtest-dev libmlir-19-dev
  libprotobuf-dev libspdlog-dev libsqlite3-dev libssl-dev llvm-19-dev nlohmann-json3-dev
  prometheus-cpp-dev protobuf-compiler protobuf-compiler-grpc
  # `inlay explain --svg`
  graphviz
  # C++ programs against the client
  pkgconf
  # backends' libraries: linked statically; shared
  libopenblas-openmp-dev libxsmm-dev
  libpthreadpool-dev libxnnpack-dev
  # bundles
  libminizip-dev patchelf zlib1g-dev
  ca-certificates python3-venv
)
# The programs: label, and where Bazel puts them under bazel-bin. Installed beside each other in libexec/inlay, with the
# archives that exported libraries are linked from, and in lib/ the shared libraries (server/install_paths.h).
PROGRAMS=(
  "//server:inlayd server/inlayd"
  "//server/worker:inlay_worker server/worker/inlay_worker"
  "//server/measuring:inlay_measurer server/measuring/inlay_measurer"
  "//core/artifact/run:inlay_run core/artifact/run/inlay_run"
)
readonly CPP_CLIENT=//client/cpp:libinlay_client.so
# Archives: core/runtime's, and lib<component>_runtime.a of every backend that has one.
readonly ARCHIVE_QUERY='//core/runtime:inlay_artifact_runtime + filter("^//core/backends/.+:.+_runtime$", kind("cc_library", //core/backends/...))'

examples=0 dev=0 bench=0 build=1
for argument in "$@"; do
  case $argument in
    --examples) examples=1 ;;
    --dev) examples=1 dev=1 ;;
    --bench) examples=1 bench=1 ;;
    --no-build) build=0 ;;
    *) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
  esac
done

start=$SECONDS
say() { printf '==> [%3ds] %s\n' $((SECONDS - start)) "$*"; }
die() { printf 'setup.sh: %s\n' "$*" >&2; exit 1; }
trap 'printf "setup.sh: stopped by an error in line %s; what was done is kept, run it again\n" "$LINENO" >&2' ERR

# One setup at a time in one checkout: two would install into the same .venv.
exec 9>"$root/.setup.lock"
flock -n 9 || { say "another setup.sh works in this checkout; waiting for it"; flock 9; }
# Without the lock's descriptor: Bazel's server outlives this script, and would keep the lock.
bazel() { command bazel "$@" 9>&-; }

install_system_packages() {
  local missing=() package
  # The micro target's tests: compilers for Cortex-M, AArch64, RISC-V, and emulators of them
  ((dev)) && APT_PACKAGES+=(
    clang-format-19 gcc-arm-none-eabi libnewlib-arm-none-eabi qemu-system-arm qemu-user
    gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc-riscv64-linux-gnu libc6-dev-riscv64-cross
  )
  for package in "${APT_PACKAGES[@]}"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then say "system packages: all there"; return; fi
  say "system packages: installing ${missing[*]}"
  local sudo=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || die "not root and no sudo; as root run: apt-get install --no-install-recommends ${missing[*]}"
    sudo=(sudo)
  fi
  "${sudo[@]}" apt-get update -q
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -q -y --no-install-recommends -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "${missing[@]}" 9>&-
}

# pip_install NAME FILE [pip options]: skipped when FILE is the one that was installed last.
pip_install() {
  local name=$1 file=$2 stamp=$VENV/.installed-$1 sum
  shift 2
  sum=$(sha256sum <"$file")
  if [[ -f $stamp && $(<"$stamp") == "$sum" ]]; then return; fi
  say "Python packages: $name"
  "$VENV/bin/python" -m pip install --disable-pip-version-check --progress-bar off -q "$@" -r "$file"
  printf '%s\n' "$sum" >"$stamp"
}

make_venv() {
  local python=${PYTHON:-python3}
  if ! "$VENV/bin/python" -c 'import pip' 2>/dev/null; then
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
      die "$python is older than 3.11; name a newer one: PYTHON=python3.11 deploy/setup.sh"
    say "making .venv with $("$python" --version)"
    "$python" -m venv --clear "$VENV"
  fi
  pip_install client deploy/requirements.txt
  if ((examples)); then
    pip_install examples deploy/requirements-examples.txt
    pip_install examples-nodeps deploy/requirements-examples-nodeps.txt --no-deps
  fi
  ((dev)) && pip_install dev deploy/requirements-dev.txt
  ((bench)) && pip_install bench deploy/requirements-bench.txt
  say "Python packages: all there"
}

# The folders that WORKSPACE's new_local_repository rules point at.
link_dependencies() {
  mkdir -p "$VENV/deps"
  local site
  site=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  ln -sfn .. "$VENV/deps/onednn"
  ln -sfn "../${site#"$VENV/"}/tvm_ffi" "$VENV/deps/tvm_ffi"
  [[ -e $VENV/deps/onednn/include/oneapi ]] || die "oneDNN's headers are not in .venv/include: remove .venv/.installed-client and run again"
  [[ -e $VENV/deps/tvm_ffi/include ]] || die "tvm-ffi's headers are not in its package: remove .venv/.installed-client and run again"
}

write_bazelrc() {
  [[ -f .bazelrc.user ]] && return
  mkdir -p "$CACHE/bazel-disk"
  printf 'build --disk_cache=%s\n' "$CACHE/bazel-disk" >.bazelrc.user
}

# install_file FILE NAME: copies under a name of its own and renames, so that a running daemon keeps its file and no
# reader sees half of one.
install_file() {
  cmp -s "$1" "$LIBEXEC/$2" && return
  install -m 755 "$1" "$LIBEXEC/.$2.$$"
  mv -f "$LIBEXEC/.$2.$$" "$LIBEXEC/$2"
}

build_server() {
  local labels=() archives=() line label file bin
  for line in "${PROGRAMS[@]}"; do labels+=("${line%% *}"); done
  mapfile -t archives < <(bazel query --noshow_progress "$ARCHIVE_QUERY")
  ((${#archives[@]} > 0)) || die "Bazel can't read the BUILD files (see above)"
  say "building the daemon and its workers with Bazel (the first time takes minutes)"
  bazel build --jobs="${INLAY_JOBS:-$(nproc)}" "${labels[@]}" "${archives[@]}" "$CPP_CLIENT"
  mkdir -p "$LIBEXEC/lib"
  bin=$(bazel info bazel-bin 2>/dev/null)
  for line in "${PROGRAMS[@]}"; do
    read -r label file <<<"$line"
    install_file "$bin/$file" "${file##*/}"
  done
  for label in "${archives[@]}"; do
    file=${label#//}
    install_file "$bin/${file%%:*}/lib${file##*:}.a" "lib${file##*:}.a"
  done
  client/cpp/install.sh "$VENV" "$bin/client/cpp/libinlay_client.so" "$VENV/deps/tvm_ffi"
  ln -sfn "$VENV/deps/tvm_ffi/lib/libtvm_ffi.so" "$LIBEXEC/lib/libtvm_ffi.so"
  ln -sfn "$VENV/lib/libdnnl.so.3" "$LIBEXEC/lib/libdnnl.so.3"
  local broken
  broken=$(ldd "$LIBEXEC/inlayd" "$LIBEXEC/inlay_worker" "$LIBEXEC/inlay_measurer" | grep 'not found' || true)
  [[ -z $broken ]] || die "the programs miss libraries:$broken"
}

install_client() {
  "$VENV/bin/python" client/python/generate_protos.py
  local stamp=$VENV/.installed-inlay sum
  sum=$(cat client/python/pyproject.toml client/python/setup.py <(printf '%s' "$root") | sha256sum)
  if [[ ! -x $VENV/bin/inlay || ! -f $stamp || $(<"$stamp") != "$sum" ]]; then
    say "installing the inlay package"
    "$VENV/bin/python" -m pip install --disable-pip-version-check -q --no-deps --no-build-isolation -e client/python
    printf '%s\n' "$sum" >"$stamp"
  fi
}

install_system_packages
make_venv
link_dependencies
write_bazelrc
install_client
if ((build)); then build_server; fi
say "ready: .venv/bin/inlay --help"
