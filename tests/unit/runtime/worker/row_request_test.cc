// SPDX-License-Identifier: Apache-2.0
#include "runtime/worker/row_request.h"

#include <algorithm>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/store/row_layout.h"
#include "runtime/tensor/sparse_rows.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsNull;

const RowTensor kTensor{.name = "emb", .rows = 100, .dim = 2, .num_chunks = 3};

TEST(RowRequestTest, APushIsSortedAndRepeatedKeysAreAdded) {
  const RowTensor one_chunk{.name = "emb", .rows = 100, .dim = 2, .num_chunks = 1};
  const std::vector<uint64_t> keys = {9, 4, 9, 1ULL << 63};
  const std::vector<float> gradient = {1, 2, 3, 4, 10, 20, 5, 6};

  const auto request = *CutRowPush(one_chunk, keys, gradient);

  const SparseRows rows = *ParseSparseRows(request->parts.front().sent->bytes(), 2);
  EXPECT_THAT(rows.keys, ElementsAre(4, 9, 1ULL << 63));
  EXPECT_THAT(rows.values, ElementsAre(3, 4, 11, 22, 5, 6));
  EXPECT_TRUE(request->Asks(0));
}

TEST(RowRequestTest, EveryRowGoesToItsChunk) {
  std::vector<uint64_t> keys(50);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = 1000 - i;
  const std::vector<float> gradient(100, 1.0F);

  const auto request = *CutRowPush(kTensor, keys, gradient);

  size_t count = 0;
  for (size_t chunk = 0; chunk < 3; ++chunk) {
    const SparseRows rows = *ParseSparseRows(request->parts[chunk].sent->bytes(), 2);
    for (const uint64_t key : rows.keys) EXPECT_EQ(ChunkOfRow(key, 3), chunk);
    count += rows.keys.size();
  }
  EXPECT_EQ(count, 50);
}

TEST(RowRequestTest, AnswersGoWhereTheirKeysWere) {
  const std::vector<uint64_t> keys = {7, 3, 7, 200};
  std::vector<float> out(8);

  const auto request = *CutRowPull(kTensor, keys, out);
  for (size_t chunk = 0; chunk < 3; ++chunk) {
    if (!request->Asks(chunk)) continue;
    std::vector<float> answer;
    const auto asked = *ParseRowKeys(request->parts[chunk].sent->bytes());
    for (const uint64_t key : asked) {
      answer.push_back(static_cast<float>(key));
      answer.push_back(-static_cast<float>(key));
    }
    ASSERT_EQ(request->parts[chunk].answer_bytes, answer.size() * sizeof(float));
    request->Store(chunk, std::as_bytes(std::span(answer)));
  }

  EXPECT_THAT(out, ElementsAre(7, -7, 3, -3, 7, -7, 200, -200));
}

TEST(RowRequestTest, AskingForVersionsSendsNothing) {
  const auto request = AskForVersions(kTensor);

  EXPECT_THAT(request->parts, Each(Field(&RowRequest::Part::sent, IsNull())));
  EXPECT_TRUE(request->Asks(2));
}

TEST(RowRequestTest, WhatDoesNotFitIsNamed) {
  const std::vector<uint64_t> keys = {1};
  std::vector<float> three(3);
  const RowTensor one_chunk{.name = "emb", .rows = 10, .dim = 1, .num_chunks = 1};
  const std::vector<float> many(RowsPerChunkMax(1) + 1);

  const absl::Status sizes = CutRowPull(kTensor, keys, three).status();
  const absl::Status number = CutFirstRows(one_chunk, many).status();

  EXPECT_THAT(std::string(sizes.message()), AllOf(HasSubstr("\"emb\""), HasSubstr("got 3")));
  EXPECT_TRUE(absl::IsResourceExhausted(number));
  EXPECT_THAT(std::string(number.message()), HasSubstr("register it with more rows than 10"));
}

}  // namespace
}  // namespace pushpull
