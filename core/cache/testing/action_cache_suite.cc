#include "core/cache/testing/action_cache_suite.h"

#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"

namespace inlay::cache {
namespace {

using ::testing::HasSubstr;

TEST_P(ActionCacheSuite, AnswersWhatWasUpdated) {
  auto cache = GetParam().make();
  const Digest action = Digest::Of("action");
  const ActionResult results[] = {
      {{}, ""},
      {{Digest::Of("a"), Digest::Of("b"), Digest::Of("a")}, std::string("data\0with a nul", 15)},
      {{}, std::string(100000, 'x')},
  };
  for (const ActionResult& result : results) {
    absl::Status status = cache->Update(action, result);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(cache->Lookup(action).value(), result);
  }
}

TEST_P(ActionCacheSuite, AMissIsNotFoundAndNamesTheAction) {
  auto cache = GetParam().make();
  const Digest action = Digest::Of("absent");
  EXPECT_EQ(cache->Lookup(action).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(cache->Lookup(action).status().message(), HasSubstr(action.hex()));
}

TEST_P(ActionCacheSuite, ManyThreadsSeeWholeResults) {
  auto cache = GetParam().make();
  const Digest action = Digest::Of("action");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, &action, t] {
      for (int i = 0; i < 50; ++i) {
        const std::string data = absl::StrCat(t, ".", i);
        ASSERT_TRUE(cache->Update(action, {{Digest::Of(data)}, data}).ok());
        absl::StatusOr<ActionResult> result = cache->Lookup(action);
        ASSERT_TRUE(result.ok()) << result.status();
        EXPECT_EQ(result->blobs[0], Digest::Of(result->data));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_P(KeyValueTableSuite, FirstWriterWins) {
  auto table = GetParam().make();
  const Digest key = Digest::Of("key");
  EXPECT_EQ(table->Get(key).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(table->PutIfAbsent(key, "one").value(), "one");
  EXPECT_EQ(table->PutIfAbsent(key, "two").value(), "one");
  EXPECT_EQ(table->Get(key).value(), "one");
  ASSERT_TRUE(table->Put(key, "three").ok());
  EXPECT_EQ(table->Get(key).value(), "three");
  EXPECT_EQ(table->Count().value(), 1);
}

TEST_P(KeyValueTableSuite, ValuesAreBytes) {
  auto table = GetParam().make();
  const std::string value("a\0b", 3);
  EXPECT_EQ(table->PutIfAbsent(Digest::Of("k"), value).value(), value);
  EXPECT_EQ(table->Get(Digest::Of("k")).value(), value);
  EXPECT_EQ(table->PutIfAbsent(Digest::Of("empty"), "").value(), "");
  EXPECT_EQ(table->Get(Digest::Of("empty")).value(), "");
}

TEST_P(KeyValueTableSuite, RacingWritersAgree) {
  auto table = GetParam().make();
  for (int round = 0; round < 20; ++round) {
    const Digest key = Digest::Of(absl::StrCat("key", round));
    absl::Mutex mu;
    std::set<std::string> answers;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::string answer = table->PutIfAbsent(key, absl::StrCat("value", t)).value();
        absl::MutexLock lock(&mu);
        answers.insert(answer);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(answers.size(), 1);
  }
}

}  // namespace
}  // namespace inlay::cache
