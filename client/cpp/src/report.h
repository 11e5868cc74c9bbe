// Report, from what the server says.
#ifndef INLAY_CLIENT_CPP_SRC_REPORT_H_
#define INLAY_CLIENT_CPP_SRC_REPORT_H_

#include "inlay/executable.h"
#include "proto/artifact.pb.h"

namespace inlay {

Report ReportOf(const proto::CompileReport& proto);

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_REPORT_H_
