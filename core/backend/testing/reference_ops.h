// The operators of the reference interpreter, by group. Private to core/backend/testing.
#ifndef INLAY_CORE_BACKEND_TESTING_REFERENCE_OPS_H_
#define INLAY_CORE_BACKEND_TESTING_REFERENCE_OPS_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/backend/testing/reference.h"

namespace inlay::backend::testing {

using Shape = std::vector<int64_t>;
using Index = std::vector<int64_t>;

struct RefCall {
  const ir::Attrs& attrs;
  const std::vector<const RefTensor*>& args;
  RefTensor* out;  // its type is set, its values are of the right number
  const RefTensor& arg(int i) const { return *args[i]; }
};
using RefOp = std::function<void(const RefCall&)>;

void AddElementwiseOps(std::map<std::string, RefOp>* ops);
void AddReductionOps(std::map<std::string, RefOp>* ops);
void AddContractionOps(std::map<std::string, RefOp>* ops);
void AddMovementOps(std::map<std::string, RefOp>* ops);

int64_t Count(const Shape& shape);
// Calls f for every index of the shape, last axis fastest.
void ForEach(const Shape& shape, const std::function<void(const Index&)>& f);
int64_t Offset(const Shape& shape, const Index& index);
// The element of a tensor that broadcasts to index.size() axes.
double AtBroadcast(const RefTensor& tensor, const Index& index);

}  // namespace inlay::backend::testing

#endif  // INLAY_CORE_BACKEND_TESTING_REFERENCE_OPS_H_
