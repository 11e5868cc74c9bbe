// Subjects for measurements, made of C by gcc: y = x * w on vectors, and what goes wrong with it. For tests.
#ifndef INLAY_SERVER_MEASURING_TESTING_H_
#define INLAY_SERVER_MEASURING_TESTING_H_

#include <string>
#include <vector>

#include "proto/worker.pb.h"

namespace inlay::server {

// `body` is what its function does; f32 arrays x, w and y of 1000 elements are at hand. `before` stands before it.
proto::MeasureAction::Subject SubjectOf(const std::string& name, const std::string& body,
                                        const std::string& weight_name = "layer.weight",
                                        const std::string& before = "");

inline constexpr char kMultiply[] = "for (int i = 0; i < 1000; ++i) y[i] = x[i] * w[i];";
inline constexpr char kCrash[] = "*(volatile int*)0 = 1;";
inline constexpr char kSpin[] = "for (volatile int i = 0;; i = i + 1) {}";

// Of one subject a body, named "subject 0" and so on; the first is the reference.
proto::MeasureAction ActionOf(const std::vector<std::string>& bodies);

}  // namespace inlay::server

#endif  // INLAY_SERVER_MEASURING_TESTING_H_
