// A worker with the fake backend alone, which misbehaves on request (core/backend/fake_backend.h). For tests.
#include "server/worker/worker_main.h"

int main(int argc, char** argv) { return inlay::server::WorkerMain(argc, argv); }
