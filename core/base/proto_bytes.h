// The bytes of a protobuf message in a form that is the same for equal messages (maps sorted), for digests and files.
#ifndef INLAY_CORE_BASE_PROTO_BYTES_H_
#define INLAY_CORE_BASE_PROTO_BYTES_H_

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message_lite.h>

#include <string>

namespace inlay {

inline std::string DeterministicBytes(const google::protobuf::MessageLite& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

}  // namespace inlay

#endif  // INLAY_CORE_BASE_PROTO_BYTES_H_
