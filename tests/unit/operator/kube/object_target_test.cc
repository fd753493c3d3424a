// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "operator/kube/object.h"

namespace pushpull_operator {
namespace {

const ResourceType kNamedPods{.version = "v1", .plural = "pods"};
const ResourceType kNodes{.version = "v1", .plural = "nodes", .scope = Scope::kCluster};
const ResourceType kJobs{.group = "pushpull.dev", .version = "v1alpha1", .plural = "trainingjobs"};

TEST(ResourceTest, TargetsMatchTheApi) {
  EXPECT_EQ(CollectionTarget(kNamedPods, ""), "/api/v1/pods");
  EXPECT_EQ(CollectionTarget(kNamedPods, "a"), "/api/v1/namespaces/a/pods");
  EXPECT_EQ(ObjectTarget(kNodes, {.name = "n"}), "/api/v1/nodes/n");
  EXPECT_EQ(ObjectTarget(kJobs, {.object_namespace = "a", .name = "mnist"}, "status"),
            "/apis/pushpull.dev/v1alpha1/namespaces/a/trainingjobs/mnist/status");
}

TEST(ResourceTest, NamesArePercentEncoded) {
  EXPECT_EQ(ObjectTarget(kNamedPods, {.object_namespace = "../x", .name = "a/b?c d"}),
            "/api/v1/namespaces/..%2fx/pods/a%2fb%3fc%20d");
}

TEST(ResourceTest, EmptyParametersAreOmitted) {
  EXPECT_EQ(WithQuery("/x", {{"a", ""}, {"b", "1=2,c"}, {"d", "e"}}), "/x?b=1%3d2%2cc&d=e");
}

}  // namespace
}  // namespace pushpull_operator
