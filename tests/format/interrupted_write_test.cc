// A write that is killed at any of its system calls leaves the old or the new package whole, and what it leaves behind
// goes with the next open.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <iterator>
#include <optional>

#include "format/package.h"
#include "support/files.h"
#include "support/kill_at.h"

namespace milwright {
namespace {

namespace fs = std::filesystem;
using testing::End;
using testing::FilesOf;
using testing::RunAndKill;
using testing::TemporaryFolder;
using testing::TestPackage;

// Makes renameat2(RENAME_EXCHANGE) fail in this process as on a file system that lacks it.
bool ForbidExchange() {
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_renameat2, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args) + 4 * sizeof(uint64_t)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, RENAME_EXCHANGE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{static_cast<unsigned short>(std::size(code)), code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

class InterruptedWrite : public ::testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(InterruptedWrite, LeavesTheOldOrTheNewPackageWhole) {
  const auto [can_exchange, has_old] = GetParam();
  const TemporaryFolder folder;
  fs::create_directory(folder.Path("out"));
  const std::string target = folder.Path("out/m.mlpackage");
  const WriteOptions quick{.durable = false};
  const auto old_model = OpenModel(TestPackage("a_accumulator"));
  const auto new_model = OpenModel(TestPackage("h_int4_block32"));
  ASSERT_OK(old_model);
  ASSERT_OK(new_model);
  ASSERT_OK(WriteModel(*old_model, folder.Path("old.mlpackage"), quick));
  ASSERT_OK(WriteModel(*new_model, folder.Path("new.mlpackage"), quick));
  const auto old_files = FilesOf(folder.Path("old.mlpackage"));
  const auto new_files = FilesOf(folder.Path("new.mlpackage"));
  const auto work = [&, can_exchange = can_exchange] {
    return (can_exchange || ForbidExchange()) && WriteModel(*new_model, target).ok();
  };
  int kept = 0;
  int replaced = 0;
  for (int stop = 1;; stop += 2) {  // every entry
    SCOPED_TRACE(fmt::format("killed at system call boundary {}", stop));
    fs::remove_all(folder.Path("out"));
    fs::create_directory(folder.Path("out"));
    if (has_old) ASSERT_OK(WriteModel(*old_model, target, quick));
    const End end = RunAndKill(work, stop);
    if (end == End::kNoTracing) GTEST_SKIP() << "this machine does not let a process trace its child";
    ASSERT_NE(end, End::kFailed);
    const auto model = OpenModel(target);
    if (model.ok()) {
      const auto files = FilesOf(target);
      const bool is_new = files == new_files;
      ASSERT_TRUE(is_new || (has_old && files == old_files));
      ++(is_new ? replaced : kept);
      // Opening removed what the dead writer left.
      ASSERT_EQ(std::distance(fs::directory_iterator(folder.Path("out")), {}), 1);
    } else {
      ASSERT_FALSE(has_old) << model.status().message();
      ASSERT_FALSE(fs::exists(target)) << model.status().message();
      ++kept;
    }
    if (end == End::kFinished) {
      ASSERT_EQ(FilesOf(target), new_files);
      break;
    }
  }
  RecordProperty("points", kept + replaced);
  std::printf("%d points: old %d, new %d\n", kept + replaced, kept, replaced);
  EXPECT_GT(kept, 20);
  EXPECT_GT(replaced, 3);
}

INSTANTIATE_TEST_SUITE_P(, InterruptedWrite, ::testing::Combine(::testing::Bool(), ::testing::Bool()),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param) ? "Exchange" : "TwoSteps") +
                                  (std::get<1>(info.param) ? "OverOld" : "Fresh");
                         });

}  // namespace
}  // namespace milwright
