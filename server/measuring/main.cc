// inlay_measurer: the measuring process with every backend's runtime (core/backends/BUILD.bazel's list).
#include "server/measuring/measurer_main.h"

int main(int argc, char** argv) { return inlay::server::MeasurerMain(argc, argv); }
