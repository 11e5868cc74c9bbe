// What a worker process does; a main links it with the backends that it is to have, and calls it.
//
//   inlay_worker --scratch_dir=DIR [--memory_bytes=N]     answers WorkerRequests from standard input, in frames
//   (frame.h), on
//                                                         standard output, until its input ends
//   inlay_worker --action=FILE --out=FILE                 one serialized CompileAction to one serialized StaticLibrary;
//   for a
//                                                         Remote Execution worker. Exit code 1 and the error on
//                                                         standard error where the action fails; then there is no
//                                                         output file
//   inlay_worker --backends                               prints names and versions
//
// Each action has a scratch directory of its own, removed after it. Nothing is recovered: a crash is a crash, an
// allocation that fails ends the process, and whoever started it looks to that. What code generators print goes to
// standard error.
#ifndef INLAY_SERVER_WORKER_WORKER_MAIN_H_
#define INLAY_SERVER_WORKER_WORKER_MAIN_H_

namespace inlay::server {

int WorkerMain(int argc, char** argv);

}  // namespace inlay::server

#endif  // INLAY_SERVER_WORKER_WORKER_MAIN_H_
