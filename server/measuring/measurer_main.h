// What a measuring process does; a main links it with the runtimes of the backends whose code it is to run, and calls
// it. It needs no compiler: ORC loads objects as they are.
//
//   inlay_measurer --scratch_dir=DIR [--memory_bytes=N]   answers WorkerRequests (measure, ping) from standard input,
//   in
//                                                         frames, on standard output, until its input ends. Says what
//                                                         it is at in DIR (progress_page.h).
//
// The code that it runs is not trusted to be right: it may crash, hang or eat memory, and whoever started the process
// looks to that (measuring_pool.h).
#ifndef INLAY_SERVER_MEASURING_MEASURER_MAIN_H_
#define INLAY_SERVER_MEASURING_MEASURER_MAIN_H_

namespace inlay::server {

int MeasurerMain(int argc, char** argv);

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_MEASURER_MAIN_H_
