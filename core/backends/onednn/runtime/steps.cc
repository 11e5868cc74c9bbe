// One function an operator: the primitive descriptor with the layouts left open.
#include <map>
#include <stdexcept>

#include "core/backends/onednn/runtime/layout.h"
#include "core/backends/onednn/runtime/program_builder.h"

namespace inlay::onednn {
namespace {

using dnnl::algorithm;
using dnnl::memory;
using dnnl::prop_kind;

// The names are oneDNN's own without their prefix.
algorithm Eltwise(const std::string& name) {
  static const auto* const kNames =
      new std::map<std::string, algorithm>{{"relu", algorithm::eltwise_relu},
                                           {"tanh", algorithm::eltwise_tanh},
                                           {"elu", algorithm::eltwise_elu},
                                           {"square", algorithm::eltwise_square},
                                           {"abs", algorithm::eltwise_abs},
                                           {"sqrt", algorithm::eltwise_sqrt},
                                           {"swish", algorithm::eltwise_swish},
                                           {"linear", algorithm::eltwise_linear},
                                           {"soft_relu", algorithm::eltwise_soft_relu},
                                           {"hardsigmoid", algorithm::eltwise_hardsigmoid},
                                           {"logistic", algorithm::eltwise_logistic},
                                           {"exp", algorithm::eltwise_exp},
                                           {"gelu_tanh", algorithm::eltwise_gelu_tanh},
                                           {"gelu_erf", algorithm::eltwise_gelu_erf},
                                           {"log", algorithm::eltwise_log},
                                           {"clip", algorithm::eltwise_clip},
                                           {"pow", algorithm::eltwise_pow},
                                           {"hardswish", algorithm::eltwise_hardswish}};
  auto found = kNames->find(name);
  if (found == kNames->end()) throw std::runtime_error("onednn: no eltwise operator '" + name + "'");
  return found->second;
}

algorithm Binary(const std::string& name) {
  static const auto* const kNames = new std::map<std::string, algorithm>{
      {"add", algorithm::binary_add}, {"sub", algorithm::binary_sub}, {"mul", algorithm::binary_mul},
      {"div", algorithm::binary_div}, {"max", algorithm::binary_max}, {"min", algorithm::binary_min}};
  auto found = kNames->find(name);
  if (found == kNames->end()) throw std::runtime_error("onednn: no binary operator '" + name + "'");
  return found->second;
}

dnnl::fpmath_mode Fpmath(const std::string& name) {
  if (name == "strict") return dnnl::fpmath_mode::strict;
  if (name == "bf16") return dnnl::fpmath_mode::bf16;
  if (name == "any") return dnnl::fpmath_mode::any;
  throw std::runtime_error("onednn: no fpmath mode '" + name + "'");
}

}  // namespace

void ProgramBuilder::AddStep(const Step& step) {
  if (step.op == "conv") return AddConvolution(step);
  if (step.op == "deconv") return AddDeconvolution(step);
  if (step.op == "matmul") return AddMatmul(step);
  if (step.op == "max_pool") return AddPooling(step, algorithm::pooling_max);
  if (step.op == "avg_pool_include") return AddPooling(step, algorithm::pooling_avg_include_padding);
  if (step.op == "avg_pool_exclude") return AddPooling(step, algorithm::pooling_avg_exclude_padding);
  if (step.op == "binary") return AddBinary(step);
  if (step.op == "eltwise") return AddEltwise(step);
  if (step.op == "softmax") return AddSoftmax(step, algorithm::softmax_accurate);
  if (step.op == "log_softmax") return AddSoftmax(step, algorithm::softmax_log);
  if (step.op == "layer_norm") return AddLayerNorm(step);
  if (step.op == "batch_norm") return AddBatchNorm(step);
  if (step.op == "reduce_mean") return AddReduceMean(step);
  if (step.op == "concat") return AddConcat(step);
  throw std::runtime_error("onednn: no step '" + step.op + "'");
}

dnnl::primitive_attr ProgramBuilder::AttrOf(const Step& step) const {
  dnnl::post_ops post_ops;
  for (const PostOp& post_op : step.post_ops) {
    if (post_op.operand.value < 0) {
      post_ops.append_eltwise(Eltwise(post_op.op), post_op.alpha, post_op.beta);
    } else {
      const View& operand = post_op.operand;
      // A full tensor follows the result's layout; one that is broadcast has none to speak of.
      const bool full = operand.dims == step.out.dims && operand.strides.empty();
      post_ops.append_binary(Binary(post_op.op),
                             full ? AnyLayout(operand.dims) : PlainLayout(operand.dims, operand.strides));
    }
  }
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attr.set_post_ops(post_ops);
  // Other primitives take no mode.
  if (step.op == "conv" || step.op == "deconv" || step.op == "matmul") {
    attr.set_fpmath_mode(Fpmath(description_.fpmath));
  }
  return attr;
}

void ProgramBuilder::AddConvolution(const Step& step) {
  const bool bias = step.args.size() > 2;
  const auto attr = AttrOf(step);
  const auto src = AnyLayout(step.args[0].dims), weights = AnyLayout(step.args[1].dims), dst = AnyLayout(step.out.dims);
  const auto& engine = program_->engine_;
  using Pd = dnnl::convolution_forward::primitive_desc;
  const Pd pd =
      bias ? Pd(engine, prop_kind::forward_inference, algorithm::convolution_direct, src, weights,
                PlainLayout(step.args[2].dims), dst, step.strides, step.dilations, step.pads_begin, step.pads_end, attr)
           : Pd(engine, prop_kind::forward_inference, algorithm::convolution_direct, src, weights, dst, step.strides,
                step.dilations, step.pads_begin, step.pads_end, attr);
  std::vector<Argument> arguments{{DNNL_ARG_SRC, step.args[0], pd.src_desc()},
                                  {DNNL_ARG_WEIGHTS, step.args[1], pd.weights_desc()}};
  if (bias) arguments.push_back({DNNL_ARG_BIAS, step.args[2], pd.bias_desc()});
  Execute(step, pd, dnnl::convolution_forward(pd), arguments, pd.dst_desc());
}

void ProgramBuilder::AddDeconvolution(const Step& step) {
  const bool bias = step.args.size() > 2;
  const auto attr = AttrOf(step);
  const auto src = AnyLayout(step.args[0].dims), weights = AnyLayout(step.args[1].dims), dst = AnyLayout(step.out.dims);
  const auto& engine = program_->engine_;
  using Pd = dnnl::deconvolution_forward::primitive_desc;
  const Pd pd =
      bias ? Pd(engine, prop_kind::forward_inference, algorithm::deconvolution_direct, src, weights,
                PlainLayout(step.args[2].dims), dst, step.strides, step.dilations, step.pads_begin, step.pads_end, attr)
           : Pd(engine, prop_kind::forward_inference, algorithm::deconvolution_direct, src, weights, dst, step.strides,
                step.dilations, step.pads_begin, step.pads_end, attr);
  std::vector<Argument> arguments{{DNNL_ARG_SRC, step.args[0], pd.src_desc()},
                                  {DNNL_ARG_WEIGHTS, step.args[1], pd.weights_desc()}};
  if (bias) arguments.push_back({DNNL_ARG_BIAS, step.args[2], pd.bias_desc()});
  Execute(step, pd, dnnl::deconvolution_forward(pd), arguments, pd.dst_desc());
}

void ProgramBuilder::AddMatmul(const Step& step) {
  const bool bias = step.args.size() > 2;
  const auto attr = AttrOf(step);
  // Only constant weights are worth packing; what changes from call to call is read as it lies, transposed or not.
  const View& b = step.args[1];
  const auto src = PlainLayout(step.args[0].dims, step.args[0].strides);
  const auto weights = description_.values[b.value].constant ? AnyLayout(b.dims) : PlainLayout(b.dims, b.strides);
  const auto dst = PlainLayout(step.out.dims);
  const auto& engine = program_->engine_;
  using Pd = dnnl::matmul::primitive_desc;
  const Pd pd =
      bias ? Pd(engine, src, weights, PlainLayout(step.args[2].dims), dst, attr) : Pd(engine, src, weights, dst, attr);
  std::vector<Argument> arguments{{DNNL_ARG_SRC, step.args[0], pd.src_desc()},
                                  {DNNL_ARG_WEIGHTS, b, pd.weights_desc()}};
  if (bias) arguments.push_back({DNNL_ARG_BIAS, step.args[2], pd.bias_desc()});
  Execute(step, pd, dnnl::matmul(pd), arguments, pd.dst_desc());
}

void ProgramBuilder::AddPooling(const Step& step, algorithm kind) {
  dnnl::pooling_forward::primitive_desc pd(program_->engine_, prop_kind::forward_inference, kind,
                                           CurrentLayout(step.args[0]), AnyLayout(step.out.dims), step.strides,
                                           step.kernel, step.dilations, step.pads_begin, step.pads_end, AttrOf(step));
  Execute(step, pd, dnnl::pooling_forward(pd), {{DNNL_ARG_SRC, step.args[0], pd.src_desc()}}, pd.dst_desc());
}

void ProgramBuilder::AddReduceMean(const Step& step) {
  dnnl::reduction::primitive_desc pd(program_->engine_, algorithm::reduction_mean, CurrentLayout(step.args[0]),
                                     AnyLayout(step.out.dims), 0.f, 0.f, AttrOf(step));
  Execute(step, pd, dnnl::reduction(pd), {{DNNL_ARG_SRC, step.args[0], pd.src_desc()}}, pd.dst_desc());
}

void ProgramBuilder::AddBinary(const Step& step) {
  const View &a = step.args[0], &b = step.args[1];
  const memory::desc a_md = CurrentLayout(a);
  // Where both are of full size, the second follows the first.
  const memory::desc b_md = b.dims == a.dims && b.strides.empty() ? a_md : PlainLayout(b.dims, b.strides);
  dnnl::binary::primitive_desc pd(program_->engine_, Binary(step.algorithm), a_md, b_md, AnyLayout(step.out.dims),
                                  AttrOf(step));
  Execute(step, pd, dnnl::binary(pd), {{DNNL_ARG_SRC_0, a, a_md}, {DNNL_ARG_SRC_1, b, b_md}}, pd.dst_desc());
}

void ProgramBuilder::AddEltwise(const Step& step) {
  dnnl::eltwise_forward::primitive_desc pd(program_->engine_, prop_kind::forward_inference, Eltwise(step.algorithm),
                                           CurrentLayout(step.args[0]), AnyLayout(step.out.dims), step.alpha, step.beta,
                                           AttrOf(step));
  Execute(step, pd, dnnl::eltwise_forward(pd), {{DNNL_ARG_SRC, step.args[0], pd.src_desc()}}, pd.dst_desc());
}

void ProgramBuilder::AddSoftmax(const Step& step, algorithm kind) {
  const auto md = CurrentLayout(step.args[0]);
  dnnl::softmax_forward::primitive_desc pd(program_->engine_, prop_kind::forward_inference, kind, md, md,
                                           static_cast<int>(step.axis), AttrOf(step));
  Execute(step, pd, dnnl::softmax_forward(pd), {{DNNL_ARG_SRC, step.args[0], pd.src_desc()}}, pd.dst_desc());
}

void ProgramBuilder::AddLayerNorm(const Step& step) {
  const auto md = PlainLayout(step.args[0].dims);
  using Flags = dnnl::normalization_flags;
  dnnl::layer_normalization_forward::primitive_desc pd(program_->engine_, prop_kind::forward_inference, md, md,
                                                       step.epsilon, Flags::use_scale | Flags::use_shift, AttrOf(step));
  Execute(step, pd, dnnl::layer_normalization_forward(pd),
          {{DNNL_ARG_SRC, step.args[0], md},
           {DNNL_ARG_SCALE, step.args[1], PlainLayout(step.args[1].dims)},
           {DNNL_ARG_SHIFT, step.args[2], PlainLayout(step.args[2].dims)}},
          md);
}

void ProgramBuilder::AddBatchNorm(const Step& step) {
  const auto md = CurrentLayout(step.args[0]);
  using Flags = dnnl::normalization_flags;
  dnnl::batch_normalization_forward::primitive_desc pd(
      program_->engine_, prop_kind::forward_inference, md, md, step.epsilon,
      Flags::use_scale | Flags::use_shift | Flags::use_global_stats, AttrOf(step));
  const auto channel = PlainLayout(step.args[1].dims);
  Execute(step, pd, dnnl::batch_normalization_forward(pd),
          {{DNNL_ARG_SRC, step.args[0], pd.src_desc()},
           {DNNL_ARG_SCALE, step.args[1], channel},
           {DNNL_ARG_SHIFT, step.args[2], channel},
           {DNNL_ARG_MEAN, step.args[3], channel},
           {DNNL_ARG_VARIANCE, step.args[4], channel}},
          pd.dst_desc());
}

void ProgramBuilder::AddConcat(const Step& step) {
  // The first argument's layout for all: they were made by primitives that prefer the same.
  std::vector<memory::desc> mds;
  for (const View& arg : step.args) mds.push_back(CurrentLayout(arg));
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  dnnl::concat::primitive_desc pd(program_->engine_, static_cast<int>(step.axis), mds, attr);
  std::vector<Argument> arguments;
  for (size_t i = 0; i < step.args.size(); ++i) {
    arguments.push_back({DNNL_ARG_MULTIPLE_SRC + static_cast<int>(i), step.args[i], mds[i]});
  }
  Execute(step, pd, dnnl::concat(pd), arguments, pd.dst_desc());
}

}  // namespace inlay::onednn
