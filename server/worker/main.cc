// inlay_worker: the worker with every backend's code generation (core/backends/BUILD.bazel's list).
#include "server/worker/worker_main.h"

int main(int argc, char** argv) { return inlay::server::WorkerMain(argc, argv); }
