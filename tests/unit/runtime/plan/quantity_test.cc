// SPDX-License-Identifier: Apache-2.0
#include "runtime/plan/quantity.h"

#include <gtest/gtest.h>

namespace pushpull {
namespace {

TEST(QuantityTest, BytesAndBitsAreToldApart) {
  EXPECT_DOUBLE_EQ(ParseBandwidth("16GB/s").value(), 16e9);
  EXPECT_DOUBLE_EQ(ParseBandwidth("15.75 GB/s").value(), 15.75e9);
  EXPECT_DOUBLE_EQ(ParseBandwidth("100Gb/s").value(), 12.5e9);
  EXPECT_DOUBLE_EQ(ParseBandwidth("900MB/s").value(), 0.9e9);
  EXPECT_DOUBLE_EQ(ParseBandwidth("1 Tb/s").value(), 125e9);
}

TEST(QuantityTest, WhatIsNoRateIsRefused) {
  for (const char* text : {"",
                           "16",
                           "GB/s",
                           "16GB",
                           "16 gb/s",
                           "-1GB/s",
                           "0GB/s",
                           "nanGB/s",
                           "infGB/s",
                           "1e400GB/s",
                           "1e12GB/s",
                           "16GB/s2",
                           "16 Gbit/s"}) {
    EXPECT_FALSE(ParseBandwidth(text).has_value()) << text;
  }
}

TEST(QuantityTest, TimesHaveUnits) {
  EXPECT_DOUBLE_EQ(ParseLatency("5us").value(), 5e-6);
  EXPECT_DOUBLE_EQ(ParseLatency("1.5 ms").value(), 1.5e-3);
  EXPECT_DOUBLE_EQ(ParseLatency("300ns").value(), 300e-9);
  EXPECT_DOUBLE_EQ(ParseLatency("0us").value(), 0);
  for (const char* text : {"5", "us", "-1us", "2s", "5 minutes"})
    EXPECT_FALSE(ParseLatency(text).has_value()) << text;
}

TEST(QuantityTest, PrintsWhatCounts) {
  EXPECT_EQ(FormatBytes(160e6), "160 MB");
  EXPECT_EQ(FormatBytes(93.333e6), "93.3 MB");
  EXPECT_EQ(FormatBytes(512), "512 B");
  EXPECT_EQ(FormatBytes(1.28e9), "1.28 GB");
  EXPECT_EQ(FormatBandwidth(12.5e9), "12.5 GB/s");
  EXPECT_EQ(FormatSeconds(0.015), "15.0 ms");
  EXPECT_EQ(FormatSeconds(0.25), "250 ms");
  EXPECT_EQ(FormatSeconds(20e-6), "20.0 us");
  EXPECT_EQ(FormatSeconds(1.5), "1.50 s");
}

}  // namespace
}  // namespace pushpull
