// softmax(q k^T scale + mask) v, in the forms that exporters leave it in, with the heads split and joined around it.
#include "core/backend/testing/cases.h"

namespace inlay::backend::testing {
namespace {

using ir::VarPtr;
using Shape = std::vector<int64_t>;

constexpr double kMasked = -1e4;

struct Heads {
  int64_t batch, count, size;
};

VarPtr Scaled(CaseBuilder* b, VarPtr x, double by) { return b->Op("mul", {x, ir::MakeScalar(ir::DType::kF32, by)}); }

VarPtr SplitHeads(CaseBuilder* b, VarPtr x, const Heads& h) {
  const int64_t length = x->type.tensor().dims[1].value();
  x = b->Op("reshape", {x}, {{"shape", Shape{h.batch, length, h.count, h.size}}});
  return b->Op("transpose", {x}, {{"perm", Shape{0, 2, 1, 3}}});
}

VarPtr Scores(CaseBuilder* b, VarPtr q, VarPtr k) { return b->Op("matmul", {q, k}, {{"transpose_b", true}}); }

VarPtr Context(CaseBuilder* b, VarPtr scores, VarPtr v) {
  const int64_t last = scores->type.tensor().rank() - 1;
  return b->Op("matmul", {b->Op("softmax", {scores}, {{"axis", last}}), v});
}

VarPtr JoinHeads(CaseBuilder* b, VarPtr context, const Heads& h) {
  context = b->Op("transpose", {context}, {{"perm", Shape{0, 2, 1, 3}}});
  const int64_t length = context->type.tensor().dims[1].value();
  return b->Op("reshape", {context}, {{"shape", Shape{h.batch, length, h.count * h.size}}});
}

// BERT: scale and mask of the keys on the scores.
void AddEncoder(const char* name, const Heads& h, int64_t rows, int64_t keys, std::vector<Case>* cases) {
  CaseBuilder b;
  const int64_t width = h.count * h.size;
  auto q = SplitHeads(&b, b.In({h.batch, rows, width}), h), k = SplitHeads(&b, b.In({h.batch, keys, width}), h);
  auto v = SplitHeads(&b, b.In({h.batch, keys, width}), h);
  auto mask = b.In({h.batch, 1, 1, keys});
  auto scores = b.Op("add", {Scaled(&b, Scores(&b, q, k), 0.3), mask});
  cases->push_back(b.Done(name, {JoinHeads(&b, Context(&b, scores, v), h)}));
}

// GPT-2: q, k and v are parts of one product; what is to come is masked, by addition or by where.
void AddDecoder(bool where, std::vector<Case>* cases) {
  CaseBuilder b;
  const Heads h{1, 3, 16};
  const int64_t length = 21;
  const int64_t width = h.count * h.size;
  auto joint = b.In({1, length, 3 * width});
  auto part = [&](int64_t i) {
    auto piece = b.Op(
        "slice", {joint},
        {{"begins", Shape{0, 0, i * width}}, {"ends", Shape{1, length, (i + 1) * width}}, {"steps", Shape{1, 1, 1}}});
    return SplitHeads(&b, piece, h);
  };
  auto q = part(0), k = part(1), v = part(2);
  auto scores = Scaled(&b, Scores(&b, q, k), 0.25);
  if (where) {
    auto seen = b.In({1, 1, length, length}, ir::DType::kBool);
    scores = b.Op("where", {seen, scores, ir::MakeScalar(ir::DType::kF32, kMasked)});
  } else {
    scores = b.Op("add", {b.In({length, length}), scores});
  }
  cases->push_back(
      b.Done(where ? "attention_decoder_where" : "attention_decoder", {JoinHeads(&b, Context(&b, scores, v), h)}));
}

// ViT: one product, reshaped and transposed as a whole; the scale is on q.
void AddVision(std::vector<Case>* cases) {
  CaseBuilder b;
  const Heads h{2, 3, 8};
  const int64_t length = 17;
  auto joint = b.In({h.batch, length, 3 * h.count * h.size});
  joint = b.Op("reshape", {joint}, {{"shape", Shape{h.batch, length, 3, h.count, h.size}}});
  joint = b.Op("transpose", {joint}, {{"perm", Shape{2, 0, 3, 1, 4}}});
  auto part = [&](int64_t i) {
    return b.Op("slice", {joint},
                {{"begins", Shape{i, 0, 0, 0, 0}},
                 {"ends", Shape{i + 1, h.batch, h.count, length, h.size}},
                 {"steps", Shape{1, 1, 1, 1, 1}}});
  };
  auto heads = [&](VarPtr x) { return b.Op("reshape", {x}, {{"shape", Shape{h.batch, h.count, length, h.size}}}); };
  auto q = heads(Scaled(&b, part(0), 0.35)), k = heads(part(1)), v = heads(part(2));
  cases->push_back(b.Done("attention_vision", {JoinHeads(&b, Context(&b, Scores(&b, q, k), v), h)}));
}

// As PyTorch writes scaled_dot_product_attention: the scale's root on q and on k^T.
void AddScaledBoth(std::vector<Case>* cases) {
  CaseBuilder b;
  auto q = Scaled(&b, b.In({2, 2, 13, 24}), 0.6);
  auto k = Scaled(&b, b.Op("transpose", {b.In({2, 2, 29, 24})}, {{"perm", Shape{0, 1, 3, 2}}}), 0.6);
  cases->push_back(b.Done("attention_scaled_both", {Context(&b, b.Op("matmul", {q, k}), b.In({2, 2, 29, 40}))}));
}

}  // namespace

void AddAttentionCases(std::vector<Case>* cases) {
  AddEncoder("attention_encoder", {2, 3, 16}, 33, 33, cases);
  AddEncoder("attention_cross", {1, 2, 20}, 18, 45, cases);
  AddEncoder("attention_one_row", {1, 2, 16}, 1, 50, cases);
  AddEncoder("attention_one_key", {1, 1, 5}, 7, 1, cases);
  AddDecoder(false, cases);
  AddDecoder(true, cases);
  AddVision(cases);
  AddScaledBoth(cases);
}

}  // namespace inlay::backend::testing
