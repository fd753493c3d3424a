#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Proves that every lint can fail: known-bad trees must be reported where they are bad, and a good
tree must not be.
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

import conventions
import crd
import effects
import format as formatting
import layers
import paths
import prose
import runtime_crd
import sizes
import sleeps
import tidy
import tree as lint

SPDX = "// SPDX-License-Identifier: Apache-2.0\n"
HEADER = SPDX + "#pragma once\n"


class LintTest(unittest.TestCase):
    def tree(self, files: dict[str, str]) -> lint.Tree:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        subprocess.run(["git", "init", "-q", str(root)], check=True)
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text, encoding="utf-8")
        return lint.Tree(root)

    def assert_reports(self, check, files: dict[str, str], *places: str) -> None:
        """Every finding is at one of `places`, each of which starts one or more findings."""
        findings = check(self.tree(files))
        for place in places:
            self.assertTrue(any(f.startswith(place) for f in findings), f"{place} not in {findings}")
        for finding in findings:
            self.assertTrue(finding.startswith(places), f"{finding} was not expected")


class LayersTest(LintTest):
    def check_include(self, name: str, include: str, is_bad: bool) -> None:
        places = [f"{name}:1"] if is_bad else []
        self.assert_reports(layers.check, {name: f"#include {include}\n"}, *places)

    def test_includes_point_down(self):
        self.check_include("runtime/base/a.h", '"runtime/tensor/dtype.h"', True)
        self.check_include("runtime/server/a.cc", '"runtime/worker/a.h"', True)
        self.check_include("runtime/train/a.cc", '"runtime/store/a.h"', True)
        self.check_include("runtime/store/a.cc", '"runtime/optim/a.h"', False)
        self.check_include("runtime/cmd/a.cc", '"runtime/local/a.h"', False)
        self.check_include("runtime/train/a.cc", '"runtime/include/pushpull/job.h"', False)
        self.check_include("runtime/server/a.cc", '"pushpull/job.h"', True)

    def test_a_folder_needs_a_row(self):
        self.check_include("runtime/unknown/a.cc", '"runtime/base/a.h"', True)

    def test_products_are_apart_from_each_other_and_from_tests(self):
        self.check_include("runtime/base/a.cc", '"tests/fakes/a.h"', True)
        self.check_include("runtime/cmd/a.cc", '"operator/api/a.h"', True)
        self.check_include("operator/api/a.cc", '"runtime/job/a.h"', False)
        self.check_include("operator/api/a.cc", '"runtime/shard/a.h"', True)
        self.check_include("operator/api/a.cc", '"runtime/membership/a.h"', True)
        self.check_include("operator/controller/a.cc", '"runtime/membership/a.h"', False)
        self.check_include("operator/controller/a.cc", '"runtime/metrics/a.h"', True)

    def test_folders_of_the_operator_point_down(self):
        self.check_include("operator/kube/a.cc", '"operator/cache/a.h"', True)
        self.check_include("operator/queue/a.cc", '"operator/kube/a.h"', True)
        self.check_include("operator/lease/a.cc", '"operator/kube/a.h"', False)
        self.check_include("operator/unknown/a.cc", '"operator/kube/a.h"', True)
        self.check_include("operator/kube/a.cc", '"operator/kube/b.h"', False)

    def test_third_party_headers_stay_inside_their_fences(self):
        self.check_include("runtime/server/lane.cc", "<grpcpp/grpcpp.h>", True)
        self.check_include("runtime/server/admin_service.h", "<grpcpp/grpcpp.h>", True)
        self.check_include("runtime/server/admin_service.cc", "<grpcpp/grpcpp.h>", False)
        self.check_include("runtime/server/lane.cc", '"pushpull/v1/control.pb.h"', True)
        self.check_include("runtime/membership/control_proto.cc", '"pushpull/v1/control.pb.h"', False)
        self.check_include("runtime/server/lane.cc", '"runtime/membership/control_proto.h"', True)
        self.check_include("runtime/server/lane.cc", "<nlohmann/json.hpp>", True)
        self.check_include("operator/cache/a.h", "<nlohmann/json.hpp>", True)
        self.check_include("operator/api/a.cc", "<httplib.h>", True)
        self.check_include("operator/kube/a.cc", "<httplib.h>", True)
        self.check_include("runtime/metrics/a.cc", "<httplib.h>", False)
        self.check_include("operator/kube/a.cc", "<curl/curl.h>", True)
        self.check_include("operator/kube/http_exchange.cc", "<curl/curl.h>", False)
        self.check_include("runtime/server/lane.cc", "<prometheus/counter.h>", True)
        self.check_include("runtime/server/server_metrics.h", "<prometheus/counter.h>", False)
        self.check_include("runtime/worker/a.cc", "<torch/torch.h>", True)
        self.check_include("runtime/device/device.h", "<cuda.h>", True)
        self.check_include("runtime/device/cuda/a.cu", "<cuda_fp16.h>", False)
        self.check_include("runtime/local/a.cc", "<CLI/CLI.hpp>", True)
        self.check_include("runtime/base/a.h", "<gtest/gtest.h>", True)
        self.check_include("runtime/base/a.cc", "<spdlog/spdlog.h>", True)

    def test_one_file_of_a_folder_takes_the_heavy_header(self):
        files = {f"runtime/metrics/{n}.cc": "#include <httplib.h>\n" for n in ("a", "b")}
        self.assert_reports(layers.check, files, "runtime/metrics/b.cc:1")

    def test_the_table_itself_points_down(self):
        self.assertEqual(layers.check_table(), [])


class SleepsTest(LintTest):
    def test_sleeps_are_found(self):
        files = {
            "tests/a_test.cc": "void F() { std::this_thread::sleep_for(1s); }",
            "tests/b_test.cc": "void F() { usleep(3); }",
            "tests/c_test.cc": "void F() {\n  sleep (1);\n}",
            "tests/d_test.py": "time.sleep(1)",
            "tests/e_test.sh": "wait\nsleep 1\n",
            "runtime/base/a.cc": "void F() { nanosleep(&t, nullptr); }",
        }
        self.assert_reports(sleeps.check, files, "tests/a_test.cc:1", "tests/b_test.cc:1",
                            "tests/c_test.cc:2", "tests/d_test.py:1", "tests/e_test.sh:2",
                            "runtime/base/a.cc:1")

    def test_words_about_sleeping_are_not_sleeps(self):
        files = {
            "tests/a_test.cc": '// never sleep(1)\nconst char* s = "sleep(1)"; int sleeps(int);',
            "tests/b_test.sh": "# sleep 1\necho asleep\n",
            "tests/bench/a.cc": "void F() { usleep(3); }",
        }
        self.assert_reports(sleeps.check, files)


class PathsTest(LintTest):
    FILES = {"runtime/base/ids.h": HEADER, "runtime/base/log.cc": SPDX, "dev": "#!/bin/bash\n"}

    def check_markdown(self, text: str, is_bad: bool, name: str = "README.md") -> None:
        places = [f"{name}:1"] if is_bad else []
        self.assert_reports(paths.check, {**self.FILES, name: text}, *places)

    def test_a_path_that_is_gone_is_found(self):
        self.check_markdown("see `runtime/base/gone.h`", True)
        self.check_markdown("see `runtime/gone/`", True)
        self.check_markdown("run `./gone run`", True)
        self.check_markdown("see [this](runtime/base/gone.h#a)", True)
        self.check_markdown("see `runtime/base/ids.{h,cc}`", True)
        self.check_markdown("see `runtime/base/*.py`", True)
        self.check_markdown("see `base/gone.h`", True, "runtime/README.md")
        self.check_markdown("see [this](../gone.md)", True, "runtime/README.md")

    def test_a_code_block_is_looked_at(self):
        files = {**self.FILES, "README.md": "```\n./dev run runtime/examples/gone.yaml\n```\n"}
        self.assert_reports(paths.check, files, "README.md:2")

    def test_paths_that_are_there_are_fine(self):
        self.check_markdown("`./dev run`, `runtime/base/`, `runtime/base/ids.h`.", False)
        self.check_markdown("`base/ids.h` [log](base/log.cc) [up](../dev)", False, "runtime/README.md")
        self.check_markdown("`runtime/base/*.h` [web](https://example.org/x)", False)

    def test_a_named_test_must_be_there(self):
        files = {**self.FILES, "tests/a_test.cc": "TEST_F(PullTest, Waits) {}\n",
                 "README.md": "`PullTest.Waits`\n`PullTest.IsGone`\n`PushTest.Waits`\n"}
        self.assert_reports(paths.check, files, "README.md:2", "README.md:3")

    def test_paths_in_comments_are_looked_at(self):
        files = {**self.FILES, "docs/protocol.md": "# A\n",
                 "runtime/base/a.cc": SPDX + "int a;  // base/ids.h, log.cc, docs/protocol.md, *_test.cc\n"
                                             "#include <map>\n"
                                             "int b;  // (gone.h)\n",
                 "tests/a.py": '"""As in protocol.md,\nand gone.md.\n"""\na = "gone.py"\n',
                 "tests/a.sh": "a=1  # gone.sh\n"}
        self.assert_reports(paths.check, files, "runtime/base/a.cc:4", "tests/a.py:2", "tests/a.sh:1")

    def test_functions_of_a_walk_must_be_there(self):
        files = {"runtime/base/a.cc": "void A::Push() { Pull(); }  // Gone\n",
                 "docs/walks.md": "1. `runtime/base/a.cc` `A::Push`, then `Pull`\n2. `runtime/base/a.cc` `Gone`\n"}
        self.assert_reports(paths.check, files, "docs/walks.md:2")

    def test_other_tokens_are_not_paths(self):
        self.check_markdown("`build/release/pushpull`, `/metrics`, `samples/s`, `a::b`, `tcp`", False)


class ProseTest(LintTest):
    GLOSSARY = ("# Glossary\n\n## Words that are not used\n\n| not used | write instead |\n| --- | --- |\n"
                "| reign, reigns | is primary |\n")

    def test_unused_words_are_found(self):
        files = {"docs/glossary.md": self.GLOSSARY, "README.md": "It reigns.\n\n`reign`\n```\nreigns\n```\n",
                 "runtime/base/a.cc": SPDX + "int reign;  // Reigns here\n"}
        self.assert_reports(prose.check, files, "README.md:1", "runtime/base/a.cc:2")

    def test_misspelled_words_are_found(self):
        files = {"README.md": "To recieve `teh`.\n", "a.py": "# SPDX\na = 'teh'\n# teh end\n"}
        self.assert_reports(prose.check, files, "README.md:1", "a.py:3")

    def test_clumsy_style_is_found(self):
        self.assert_reports(prose.check, {"README.md": "Good.\n\nIt takes over the ATM machine.\n"}, "README.md:3")


class SizesTest(LintTest):
    def check_function(self, text: str, what: str) -> None:
        findings = sizes.check(self.tree({"runtime/base/a.cc": text}))
        self.assertEqual(len(findings), 1 if what else 0, findings)
        self.assertIn(what, "".join(findings))

    def test_long_files_are_found(self):
        files = {"runtime/base/a.py": "\n" * 801, "runtime/base/b.py": "\n" * 800,
                 "tests/a_test.cc": "\n" * 1001, "tests/b_test.cc": "\n" * 1000}
        self.assert_reports(sizes.check, files, "runtime/base/a.py:1", "tests/a_test.cc:1")

    def test_classes_with_many_methods_are_found(self):
        methods = "".join(f"  int F{i}(std::function<void(int)> f = {{}}) const {{ return {i}; }}\n" for i in range(26))
        fields = "  std::function<void(int)> f_;\n  int a_{0};\n  int b_ = G(1);\n"
        files = {"runtime/base/a.h": f"namespace p {{\nclass A {{\n public:\n{methods}{fields}}};\n}}\n",
                 "runtime/base/b.h": f"namespace p {{\nclass B {{\n{methods}{fields}}};\n}}\n"}
        self.assert_reports(sizes.check, files, "runtime/base/a.h:2")

    def test_lines_of_a_class_count_wherever_they_are(self):
        part = "void A::F{}() {{" + "\n  G();" * 67 + "\n}}\n"
        sources = [SPDX + "".join(part.format(i) for i in range(3)) for _ in range(2)]
        header = HEADER + "class A {\n  // Why.\n\n  void F0();\n};\n"
        files = {"runtime/base/a.h": header, "runtime/base/a.cc": sources[0]}
        self.assert_reports(sizes.check, files)
        self.assert_reports(sizes.check, {**files, "runtime/base/a_more.cc": sources[1]}, "runtime/base/a.h:3")
        self.assert_reports(sizes.check, {**files, "runtime/job/a_more.cc": sources[1]})

    def test_long_functions_are_found(self):
        self.check_function("void A::F() {" + "\n" * 70 + "}", "71 lines")
        self.check_function("void A::F() {" + "\n" * 69 + "}", "")
        self.check_function("A::A(int a) : a_(a), b_{1} {" + "\n" * 70 + "}", "71 lines")
        self.check_function("void F() { G([&](int a) {" + "\n" * 69 + "}); }", "")
        self.check_function("class A {" + "\n" * 90 + "};", "")

    def test_many_parameters_are_found(self):
        self.check_function("int F(int a, M<K, V> b, int c, int d, int e, int f) { return 1; }", "")
        self.check_function("int F(int a, M<K, V> b, int c, int d, int e, int f, int g) { }",
                            "7 parameters")
        self.check_function("auto f = [](int a, int b, int c, int d, int e, int f, int g) { };",
                            "7 parameters")

    def test_deep_nesting_is_found(self):
        four = "void F() { if (a) { for (;;) { while (b) { switch (c) { X } } } } }"
        self.check_function(four.replace("X", "d();"), "")
        self.check_function(four.replace("X", "if (d) { e(); }"), "5 levels")
        self.check_function(four.replace("X", "G([&] { if (d) { e(); } });"), "")

    def test_python_functions_count_too(self):
        files = {"tests/a_test.py": "def f(a, b, c, d, e, f, g):\n    pass\n"}
        self.assert_reports(sizes.check, files, "tests/a_test.py:1")


class ConventionsTest(LintTest):
    def check_code(self, code: str, is_bad: bool, name: str = "runtime/base/a.cc") -> None:
        self.assert_reports(conventions.check, {name: SPDX + code}, *([f"{name}:2"] if is_bad else []))

    def test_two_classes_of_one_name_are_found(self):
        one, other = HEADER + "namespace p {\nstruct A {\n};\n}\n", HEADER + "struct B {\n  struct A {};\n};\n"
        files = {"runtime/base/a.h": one, "runtime/job/b.h": other, "operator/api/a.h": one}
        self.assert_reports(conventions.check, files)
        self.assert_reports(conventions.check, {**files, "runtime/job/c.h": one}, "runtime/job/c.h:4")

    def test_source_files_start_with_the_licence(self):
        files = {"a.cc": "int a;\n", "b.py": "#!/usr/bin/env python3\nimport os\n",
                 "dev": "#!/bin/bash\nset -e\n", "c.cc": SPDX, "README.md": "# A\n",
                 "d.py": "#!/usr/bin/env python3\n# SPDX-License-Identifier: Apache-2.0\n"}
        self.assert_reports(conventions.check, files, "a.cc:1", "b.py:1", "dev:1")

    def test_shell_scripts_can_be_parsed(self):
        head = "#!/usr/bin/env bash\n# SPDX-License-Identifier: Apache-2.0\n"
        files = {"a.sh": head + "if true; then\n  echo a\nfi\n", "b.sh": head + "echo a )\n", "dev": head + "case\n"}
        self.assert_reports(conventions.check, files, "b.sh:3", "dev:3")

    def test_names_say_something(self):
        files = {"runtime/base/string_util.cc": SPDX, "runtime/internal/a.cc": SPDX,
                 "runtime/base/utility_curve.cc": SPDX}
        self.assert_reports(conventions.check, files, "runtime/base/string_util.cc:1",
                            "runtime/internal/a.cc:1")

    def test_headers_are_included_once(self):
        self.assert_reports(conventions.check, {"a.h": SPDX, "b.h": HEADER}, "a.h:1")

    def test_locks_are_ours(self):
        self.check_code("std::mutex mu_;", True)
        self.check_code("std::shared_mutex mu_;", True)
        self.check_code("absl::MutexLock lock(&mu_);", True)
        self.check_code("std::condition_variable changed_;", True)
        self.check_code("MutexLock lock(mu_);  // not std::mutex", False)
        self.check_code("std::mutex mutex_;\n#pragma once", False, "runtime/base/mutex.h")

    def test_only_programs_read_the_environment(self):
        self.check_code('const char* v = std::getenv("A");', True)
        self.check_code('const char* v = std::getenv("A");', False, "runtime/cmd/main.cc")

    def test_messages_have_no_map_fields(self):
        self.check_code("  map<string, double> results = 1;", True, "proto/pushpull/v1/a.proto")
        self.check_code("  // not a map<>", False, "proto/pushpull/v1/a.proto")

    def test_words_that_stay_outside(self):
        self.check_code("// TODO later", True)
        self.check_code("int a;  // NOLINT", True)
        self.check_code("int a;  // NOLINT(bugprone-branch-clone)", True)
        self.check_code("int a;  // NOLINT(bugprone-branch-clone): the cases differ in units", False)
        self.check_code("std::thread(f).detach();", True)
        self.check_code('const char* kPath = "/home/' + 'somebody/src";', True)
        self.check_code('const char* kPath = "/' + 'root/src";', True)
        self.check_code('const char* kPath = "shared/work/src";', False)
        self.check_code("// see ghcr" + ".io/pushpull", True)


class FormatTest(LintTest):
    def test_a_difference_is_printed_as_a_patch(self):
        style = {".clang-format": "BasedOnStyle: Google\n"}
        self.assert_reports(formatting.check, {**style, "a.cc": "int  a;\n", "b.cc": "int b;\n"},
                            "--- a/a.cc\n+++ b/a.cc")


class EffectsTest(LintTest):
    GOOD = {crd.PATH: "openAPIV3Schema:\n  properties:\n    spec:\n      properties:\n        image: {type: string}\n",
            "runtime/cmd/run.cc": 'add_option("--report", x); Get("PUSHPULL_JOB");',
            effects.VALUES: '{"properties": {"workers": {"type": "integer"}}}',
            "tests/a_test.cc": "TEST(ATest, B) {}\n",
            effects.TABLE: "| `spec.image`, `run --report`, `PUSHPULL_JOB`, `workers` | `ATest.B` |\n"}

    def test_a_setting_needs_a_row_and_a_row_a_setting_and_a_test(self):
        self.assert_reports(effects.check, self.GOOD)
        self.assert_reports(effects.check, {**self.GOOD, effects.TABLE: ""}, effects.TABLE + ": ")
        for row in ("| `spec.gone` | `ATest.B` |\n", "| `workers` | `ATest.C` |\n", "| `workers` | |\n"):
            self.assert_reports(effects.check, {**self.GOOD, effects.TABLE: self.GOOD[effects.TABLE] + row}, effects.TABLE + ":2: ")


class RuntimeCrdTest(LintTest):
    JOBS = ("            spec:\n              type: object\n              properties:\n"
            "                image: {type: string}\n                suspend: {type: boolean}\n            status:\n")

    def test_a_runtime_has_the_fields_of_a_job_but_its_own(self):
        shared = runtime_crd.MARK + "              properties:\n                image: {type: string}\n"
        others = shared.replace("string", "integer")

        self.assert_reports(runtime_crd.check, {crd.PATH: self.JOBS, runtime_crd.PATH: shared})
        for text in ("", others, shared + "                suspend: {type: boolean}\n"):
            self.assert_reports(runtime_crd.check, {crd.PATH: self.JOBS, runtime_crd.PATH: text}, runtime_crd.PATH + ":1: ")


class TidyTest(LintTest):
    def test_a_configuration_without_checks_is_found(self):
        bad = pathlib.Path(__file__).with_name("tidy_known_bad.cc").read_text(encoding="utf-8")
        tree = self.tree({".clang-tidy": "Checks: '-*,misc-unused-alias-decls'\n", tidy.KNOWN_BAD: bad})

        self.assertIn("does not report bugprone-use-after-move", tidy.check_configuration(tree)[0])

    def test_a_header_is_looked_at_through_its_source(self):
        names = ["runtime/base/a.h", "runtime/base/a.cc", "README.md", "runtime/base/b.h"]

        self.assertEqual(tidy.sources(names, {"runtime/base/a.cc"}), ["runtime/base/a.cc"])


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    unittest.main(verbosity=0)
