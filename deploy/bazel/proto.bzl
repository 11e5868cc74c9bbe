"""inlay_proto: C++ code for one .proto file, made by Debian's protoc."""

def inlay_proto(name, src, deps = [], grpc = False):
    """Generates and compiles the C++ code of a .proto file of this package.

    Args:
      name: of the cc_library.
      src: the .proto file.
      deps: other inlay_proto targets that src imports.
      grpc: whether to generate the services' stubs too.
    """
    base = src[:-len(".proto")]
    outs = [base + ".pb.h", base + ".pb.cc"]
    flags = "--cpp_out=$(GENDIR)"
    if grpc:
        outs += [base + ".grpc.pb.h", base + ".grpc.pb.cc"]
        flags += " --grpc_out=$(GENDIR) --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin"
    native.genrule(
        name = name + "_gen",
        srcs = [src, ":proto_files"],
        outs = outs,
        cmd = "protoc -I. %s $(location %s)" % (flags, src),
    )
    native.cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".cc")],
        hdrs = [o for o in outs if o.endswith(".h")],
        deps = deps + ["@sys//:grpc" if grpc else "@sys//:protobuf"],
    )
