#ifndef INLAY_SERVER_VERSION_H_
#define INLAY_SERVER_VERSION_H_

namespace inlay::server {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace inlay::server

#endif  // INLAY_SERVER_VERSION_H_
