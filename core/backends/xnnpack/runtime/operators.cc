#include "core/backends/xnnpack/runtime/operators.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "core/backends/xnnpack/runtime/weights.h"

namespace inlay::xnnpack {
namespace {

// Kernels work on 16 channels or elements at once, and a cache line holds 16.
constexpr int64_t kVector = 16;
// Below so many elements a piece costs more to hand out than to do.
constexpr double kMinElements = 16e3;

// [begin, end) of `extent`, in multiples of `grain`.
struct Range {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

std::vector<Range> Split(int64_t extent, int64_t grain, int64_t most) {
  const int64_t grains = (extent + grain - 1) / grain;
  const int64_t count = std::max<int64_t>(1, std::min(grains, most));
  std::vector<Range> ranges;
  for (int64_t i = 0; i < count; ++i) {
    ranges.push_back({grains * i / count * grain, std::min(extent, grains * (i + 1) / count * grain)});
  }
  return ranges;
}

class Maker {
 public:
  Maker(const Step& step, const Description& description, const std::vector<const float*>& constants, int num_threads)
      : s_(step), d_(description), constants_(constants), num_threads_(num_threads) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    min_ = step.clamp.has_min ? step.clamp.min : -kInfinity;
    max_ = step.clamp.has_max ? step.clamp.max : kInfinity;
  }

  std::vector<Piece> Make() {
    if (s_.op == "conv" || s_.op == "deconv") {
      MakeConvs();
    } else if (s_.op == "fully_connected") {
      MakeFullyConnected();
    } else if (s_.op == "max_pool" || s_.op == "avg_pool" || s_.op == "global_avg_pool") {
      MakePools();
    } else if (s_.op == "softmax") {
      MakeSoftmax();
    } else if (s_.op == "unary") {
      MakeUnary();
    } else if (s_.op == "binary") {
      MakeBinary();
    } else {
      MakeConcat();
    }
    return std::move(pieces_);
  }

 private:
  int64_t PiecesFor(double work, double least) const {
    return std::max<int64_t>(1, std::min<int64_t>(num_threads_, static_cast<int64_t>(work / least)));
  }
  int64_t PiecesByElements() const {
    return PiecesFor(static_cast<double>(d_.values[s_.args[0]].elements), kMinElements);
  }

  // `op` by address: it is written while the arguments are evaluated.
  Piece& Add(xnn_status status, const xnn_operator_t* op) {
    ThrowIfError(status, s_.op.c_str());
    pieces_.emplace_back();
    pieces_.back().op.reset(*op);
    return pieces_.back();
  }

  // Output channels of one group, or whole groups.
  void MakeConvs() {
    std::vector<float> memory;
    const float* weights = OutputMajorWeights(s_, constants_[1], &memory);
    const float* bias = s_.args.size() > 2 ? constants_[2] : nullptr;
    const int64_t in = s_.channels / s_.groups, out = s_.out_channels / s_.groups;
    const int64_t taps = s_.kernel[0] * s_.kernel[1];
    const double pixels = static_cast<double>(s_.op == "conv" ? s_.out_height * s_.out_width : s_.height * s_.width);
    const int64_t count =
        PiecesFor(pixels * s_.batch * taps * in * s_.out_channels, static_cast<double>(d_.split_macs));
    const bool grouped = s_.groups > 1;
    const int64_t grain = grouped && in > 1 ? 1 : kVector;  // a depthwise kernel's vector is one of groups
    for (const Range& range : Split(grouped ? s_.groups : out, grain, count)) {
      const int64_t groups = grouped ? range.size() : 1;
      const int64_t first_out = grouped ? range.begin * out : range.begin;
      Piece& piece = AddConv(groups, in, grouped ? out : range.size(), weights + first_out * taps * in,
                             bias == nullptr ? nullptr : bias + first_out);
      piece.a_offset = grouped ? range.begin * in : 0;
      piece.out_offset = first_out;
    }
  }

  Piece& AddConv(int64_t groups, int64_t in, int64_t out, const float* weights, const float* bias) {
    xnn_operator_t op = nullptr;
    const Step& s = s_;
    if (s.op == "conv") {
      Piece& piece =
          Add(xnn_create_convolution2d_nhwc_f32(s.pads[0], s.pads[1], s.pads[2], s.pads[3], s.kernel[0], s.kernel[1],
                                                s.strides[0], s.strides[1], s.dilations[0], s.dilations[1], groups, in,
                                                out, s.channels, s.out_channels, weights, bias, min_, max_, 0, &op),
              &op);
      piece.setup = [b = s.batch, h = s.height, w = s.width](auto o, auto* x, auto*, auto* y) {
        return xnn_setup_convolution2d_nhwc_f32(o, b, h, w, x, y, nullptr);
      };
      return piece;
    }
    Piece& piece =
        Add(xnn_create_deconvolution2d_nhwc_f32(s.pads[0], s.pads[1], s.pads[2], s.pads[3], s.kernel[0], s.kernel[1],
                                                s.strides[0], s.strides[1], s.dilations[0], s.dilations[1], groups, in,
                                                out, s.channels, s.out_channels, weights, bias, min_, max_, 0, &op),
            &op);
    piece.setup = [b = s.batch, h = s.height, w = s.width, ah = s.adjustment[0], aw = s.adjustment[1]](auto o, auto* x,
                                                                                                       auto*, auto* y) {
      return xnn_setup_deconvolution2d_nhwc_f32(o, b, h, w, ah, aw, x, y, nullptr);
    };
    return piece;
  }

  void MakeFullyConnected() {
    std::vector<float> memory;
    const float* weights = OutputMajorWeights(s_, constants_[1], &memory);
    const float* bias = s_.args.size() > 2 ? constants_[2] : nullptr;
    const int64_t count =
        PiecesFor(static_cast<double>(s_.rows) * s_.channels * s_.out_channels, static_cast<double>(d_.split_macs));
    for (const Range& range : Split(s_.out_channels, kVector, count)) {
      xnn_operator_t op = nullptr;
      Piece& piece =
          Add(xnn_create_fully_connected_nc_f32(s_.channels, range.size(), s_.channels, s_.out_channels,
                                                weights + range.begin * s_.channels,
                                                bias == nullptr ? nullptr : bias + range.begin, min_, max_, 0, &op),
              &op);
      piece.out_offset = range.begin;
      piece.setup = [rows = s_.rows](auto o, auto* x, auto*, auto* y) {
        return xnn_setup_fully_connected_nc_f32(o, rows, x, y, nullptr);
      };
    }
  }

  // By channels.
  void MakePools() {
    const Step& s = s_;
    for (const Range& range : Split(s.channels, kVector, PiecesByElements())) {
      xnn_operator_t op = nullptr;
      const size_t channels = range.size();
      xnn_status status;
      if (s.op == "global_avg_pool") {
        status = xnn_create_global_average_pooling_nwc_f32(channels, s.channels, s.channels, min_, max_, 0, &op);
      } else if (s.op == "max_pool") {
        status = xnn_create_max_pooling2d_nhwc_f32(s.pads[0], s.pads[1], s.pads[2], s.pads[3], s.kernel[0], s.kernel[1],
                                                   s.strides[0], s.strides[1], s.dilations[0], s.dilations[1], channels,
                                                   s.channels, s.channels, min_, max_, 0, &op);
      } else {
        status = xnn_create_average_pooling2d_nhwc_f32(s.pads[0], s.pads[1], s.pads[2], s.pads[3], s.kernel[0],
                                                       s.kernel[1], s.strides[0], s.strides[1], channels, s.channels,
                                                       s.channels, min_, max_, 0, &op);
      }
      Piece& piece = Add(status, &op);
      piece.a_offset = piece.out_offset = range.begin;
      piece.setup = [b = s.batch, h = s.height, w = s.width, kind = s.op[0]](auto o, auto* x, auto*, auto* y) {
        if (kind == 'g') return xnn_setup_global_average_pooling_nwc_f32(o, b, h * w, x, y, nullptr);
        if (kind == 'm') return xnn_setup_max_pooling2d_nhwc_f32(o, b, h, w, x, y, nullptr);
        return xnn_setup_average_pooling2d_nhwc_f32(o, b, h, w, x, y, nullptr);
      };
    }
  }

  void MakeSoftmax() {
    for (const Range& range : Split(s_.rows, 1, PiecesByElements())) {
      xnn_operator_t op = nullptr;
      Piece& piece = Add(xnn_create_softmax_nc_f32(s_.channels, s_.channels, s_.channels, 0, &op), &op);
      piece.a_offset = piece.out_offset = range.begin * s_.channels;
      piece.setup = [rows = range.size()](auto o, auto* x, auto*, auto* y) {
        return xnn_setup_softmax_nc_f32(o, rows, x, y, nullptr);
      };
    }
  }

  using CreateUnary = xnn_status (*)(size_t, size_t, size_t, uint32_t, xnn_operator_t*);
  using SetupUnary = xnn_status (*)(xnn_operator_t, size_t, const float*, float*, pthreadpool_t);
  struct Unary {
    const char* name;
    CreateUnary create;
    SetupUnary setup;
  };

  void MakeUnary() {
    static constexpr Unary kPlain[] = {
        {"sigmoid", xnn_create_sigmoid_nc_f32, xnn_setup_sigmoid_nc_f32},
        {"abs", xnn_create_abs_nc_f32, xnn_setup_abs_nc_f32},
        {"negate", xnn_create_negate_nc_f32, xnn_setup_negate_nc_f32},
        {"square_root", xnn_create_square_root_nc_f32, xnn_setup_square_root_nc_f32},
        {"floor", xnn_create_floor_nc_f32, xnn_setup_floor_nc_f32},
        {"ceiling", xnn_create_ceiling_nc_f32, xnn_setup_ceiling_nc_f32},
        {"bankers_rounding", xnn_create_bankers_rounding_nc_f32, xnn_setup_bankers_rounding_nc_f32},
        {"hardswish", xnn_create_hardswish_nc_f32, xnn_setup_hardswish_nc_f32},
    };
    const std::string& name = s_.algorithm;
    for (const Range& range : Split(d_.values[s_.out].elements, kVector, PiecesByElements())) {
      xnn_operator_t op = nullptr;
      const size_t n = range.size();
      SetupUnary setup = nullptr;
      xnn_status status = xnn_status_invalid_parameter;
      if (name == "clamp") {
        status = xnn_create_clamp_nc_f32(n, n, n, min_, max_, 0, &op);
        setup = xnn_setup_clamp_nc_f32;
      } else if (name == "leaky_relu") {
        status = xnn_create_leaky_relu_nc_f32(n, n, n, s_.alpha, 0, &op);
        setup = xnn_setup_leaky_relu_nc_f32;
      } else if (name == "elu") {
        status = xnn_create_elu_nc_f32(n, n, n, s_.alpha, 0, &op);
        setup = xnn_setup_elu_nc_f32;
      } else {
        for (const Unary& unary : kPlain) {
          if (name != unary.name) continue;
          status = unary.create(n, n, n, 0, &op);
          setup = unary.setup;
        }
      }
      Piece& piece = Add(status, &op);
      piece.a_offset = piece.out_offset = range.begin;
      piece.setup = [setup](auto o, auto* x, auto*, auto* y) { return setup(o, 1, x, y, nullptr); };
    }
  }

  using SetupBinary = xnn_status (*)(xnn_operator_t, size_t, const size_t*, size_t, const size_t*, const float*,
                                     const float*, float*, pthreadpool_t);

  // Along the first axis of the result that has an extent.
  void MakeBinary() {
    std::vector<size_t> a(s_.dims[0].begin(), s_.dims[0].end()), b(s_.dims[1].begin(), s_.dims[1].end());
    size_t axis = 0;
    while (axis + 1 < a.size() && std::max(a[axis], b[axis]) == 1) ++axis;
    const int64_t extent = a.empty() ? 1 : static_cast<int64_t>(std::max(a[axis], b[axis]));
    const int64_t row = d_.values[s_.out].elements / extent;
    const double elements = static_cast<double>(d_.values[s_.out].elements);
    for (const Range& range : Split(extent, row % kVector == 0 ? 1 : kVector, PiecesFor(elements, kMinElements))) {
      xnn_operator_t op = nullptr;
      SetupBinary setup = nullptr;
      Piece& piece = Add(CreateBinary(&op, &setup), &op);
      piece.b_arg = 1;
      piece.out_offset = range.begin * row;
      std::vector<size_t> a_part = a, b_part = b;
      piece.a_offset = Part(range, axis, &a_part);
      piece.b_offset = Part(range, axis, &b_part);
      piece.setup = [setup, a_part, b_part](auto o, auto* x, auto* y, auto* z) {
        return setup(o, a_part.size(), a_part.data(), b_part.size(), b_part.data(), x, y, z, nullptr);
      };
    }
  }

  // Cuts the axis of an argument, unless it is broadcast there; where the part begins.
  static int64_t Part(const Range& range, size_t axis, std::vector<size_t>* dims) {
    if (dims->empty() || (*dims)[axis] == 1) return 0;
    int64_t row = 1;
    for (size_t i = axis + 1; i < dims->size(); ++i) row *= static_cast<int64_t>((*dims)[i]);
    (*dims)[axis] = range.size();
    return range.begin * row;
  }

  xnn_status CreateBinary(xnn_operator_t* op, SetupBinary* setup) const {
    struct Clamped {
      const char* name;
      xnn_status (*create)(float, float, uint32_t, xnn_operator_t*);
      SetupBinary setup;
    };
    static constexpr Clamped kClamped[] = {
        {"add", xnn_create_add_nd_f32, xnn_setup_add_nd_f32},
        {"subtract", xnn_create_subtract_nd_f32, xnn_setup_subtract_nd_f32},
        {"multiply", xnn_create_multiply_nd_f32, xnn_setup_multiply_nd_f32},
        {"divide", xnn_create_divide_nd_f32, xnn_setup_divide_nd_f32},
    };
    for (const Clamped& binary : kClamped) {
      if (s_.algorithm != binary.name) continue;
      *setup = binary.setup;
      return binary.create(min_, max_, 0, op);
    }
    if (s_.algorithm == "maximum") {
      *setup = xnn_setup_maximum_nd_f32;
      return xnn_create_maximum_nd_f32(0, op);
    }
    if (s_.algorithm == "minimum") {
      *setup = xnn_setup_minimum_nd_f32;
      return xnn_create_minimum_nd_f32(0, op);
    }
    return xnn_status_invalid_parameter;
  }

  void MakeConcat() {
    const int64_t width = d_.values[s_.out].elements / s_.rows;
    int64_t offset = 0;
    for (size_t i = 0; i < s_.parts.size(); ++i) {
      xnn_operator_t op = nullptr;
      Piece& piece = Add(xnn_create_copy_nc_x32(s_.parts[i], s_.parts[i], width, 0, &op), &op);
      piece.a_arg = static_cast<int>(i);
      piece.out_offset = offset;
      piece.setup = [rows = s_.rows](auto o, auto* x, auto*, auto* y) {
        return xnn_setup_copy_nc_x32(o, rows, x, y, nullptr);
      };
      offset += s_.parts[i];
    }
  }

  const Step& s_;
  const Description& d_;
  const std::vector<const float*>& constants_;
  const int num_threads_;
  float min_, max_;
  std::vector<Piece> pieces_;
};

}  // namespace

void ThrowIfError(xnn_status status, const char* what) {
  if (status == xnn_status_success) return;
  if (status == xnn_status_out_of_memory) throw std::bad_alloc();
  static constexpr const char* kNames[] = {"success",       "uninitialized",         "invalid parameter",
                                           "invalid state", "unsupported parameter", "unsupported hardware"};
  const bool known = status >= 0 && status < static_cast<int>(std::size(kNames));
  throw LibraryError(std::string("xnnpack: ") + what + ": " + (known ? kNames[status] : "unknown status"));
}

std::vector<Piece> MakePieces(const Step& step, const Description& description,
                              const std::vector<const float*>& constants, int num_threads) {
  return Maker(step, description, constants, num_threads).Make();
}

}  // namespace inlay::xnnpack
