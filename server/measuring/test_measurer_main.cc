// A measuring process without any backend's runtime. For tests.
#include "server/measuring/measurer_main.h"

int main(int argc, char** argv) { return inlay::server::MeasurerMain(argc, argv); }
