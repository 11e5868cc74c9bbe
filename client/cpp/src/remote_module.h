// A model loaded into the daemon, as a module: run over the wire.
#ifndef INLAY_CLIENT_CPP_SRC_REMOTE_MODULE_H_
#define INLAY_CLIENT_CPP_SRC_REMOTE_MODULE_H_

#include <memory>

#include "inlay/client.h"
#include "inlay/module.h"
#include "proto/compile_service.pb.h"

namespace inlay {

// Unloads it when its last reference goes. `run`: of each call of "main".
Module RemoteModule(std::shared_ptr<Client> client, const proto::JitResponse& response, const CallOptions& run);

}  // namespace inlay

#endif  // INLAY_CLIENT_CPP_SRC_REMOTE_MODULE_H_
