// Bounded reading, paths that stay inside, and replacement that leaves old or new.
#include "base/file_io.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "base/mapped_file.h"
#include "support/files.h"

namespace milwright {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ReadAll;
using testing::TemporaryFolder;
using testing::WriteAll;

TEST(ReadFile, GivesContentUpToTheLimit) {
  const TemporaryFolder folder;
  WriteAll(folder.Path("a"), "hello");
  EXPECT_EQ(*ReadFile(folder.Path("a"), 5), "hello");
  EXPECT_THAT(ReadFile(folder.Path("a"), 4).status().message(), HasSubstr("5 bytes, more than the 4"));
  EXPECT_EQ(ReadFile(folder.Path("missing"), 5).status().code(), ErrorCode::kUnreadable);
  EXPECT_THAT(ReadFile(folder.Path(), 5).status().message(), HasSubstr("not a regular file"));
}

TEST(ReadFile, DoesNotWaitForAPipe) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo(folder.Path("pipe").c_str(), 0600), 0);
  EXPECT_THAT(ReadFile(folder.Path("pipe"), 5).status().message(), HasSubstr("not a regular file"));
  EXPECT_THAT(MappedFile::Open(folder.Path("pipe")).status().message(), HasSubstr("not a regular file"));
}

TEST(ListDirectory, IsSortedAndComplete) {
  const TemporaryFolder folder;
  WriteAll(folder.Path("b"), "");
  WriteAll(folder.Path("a"), "");
  WriteAll(folder.Path(".hidden"), "");
  EXPECT_THAT(*ListDirectory(folder.Path()), ElementsAre(".hidden", "a", "b"));
  EXPECT_EQ(ListDirectory(folder.Path("a")).status().code(), ErrorCode::kUnreadable);
}

TEST(OpenBeneath, StaysInside) {
  const TemporaryFolder folder;
  WriteAll(folder.Path("root/sub/file"), "inside");
  WriteAll(folder.Path("outside"), "secret");
  const std::string root = folder.Path("root");
  fs::create_symlink("sub/file", root + "/link");
  fs::create_symlink("../outside", root + "/escape");
  fs::create_symlink("/etc/passwd", root + "/absolute");
  fs::create_directory_symlink("..", root + "/up");
  EXPECT_OK(OpenBeneath(root, "sub/file"));
  EXPECT_OK(OpenBeneath(root, "link"));
  for (const char* path : {"../outside", "sub/../../outside", "/etc/passwd", "escape", "absolute", "up/outside", ""}) {
    const auto file = OpenBeneath(root, path);
    ASSERT_FALSE(file.ok()) << path;
    EXPECT_EQ(file.status().code(), ErrorCode::kUnreadable);
  }
  EXPECT_THAT(OpenBeneath(root, "escape").status().message(), HasSubstr("symbolic link"));
  EXPECT_THAT(OpenBeneath(root, "sub/none").status().message(), HasSubstr("cannot open"));
}

TEST(MappedFile, ReadsWithoutTouchingThePages) {
  const TemporaryFolder folder;
  WriteAll(folder.Path("a"), "0123456789");
  const auto map = MappedFile::Open(folder.Path("a"), AccessPattern::kRandom);
  ASSERT_OK(map);
  std::array<std::byte, 4> piece{};
  ASSERT_OK((*map)->ReadAt(3, piece));
  EXPECT_EQ(static_cast<char>(piece[0]), '3');
  EXPECT_FALSE((*map)->ReadAt(7, piece).ok());
  EXPECT_FALSE((*map)->ReadAt(UINT64_MAX, piece).ok());
  EXPECT_EQ((*map)->bytes().size(), 10U);
  WriteAll(folder.Path("empty"), "");
  EXPECT_EQ((*MappedFile::Open(folder.Path("empty")))->size(), 0U);
}

TEST(OutputFile, BuffersPatchesAndReadsBack) {
  const TemporaryFolder folder;
  auto file = OutputFile::Create(folder.Path("a"));
  ASSERT_OK(file);
  const std::string large(1U << 20U, 'x');
  ASSERT_OK(file->Append("head"));
  ASSERT_OK(file->Append(large));
  ASSERT_OK(file->AppendZeros(5000));
  ASSERT_OK(file->PatchAt(0, std::as_bytes(std::span("HE", 2))));
  EXPECT_EQ(file->PatchAt(file->size(), std::as_bytes(std::span("x", 1))).code(), ErrorCode::kInternal);
  std::array<std::byte, 6> piece{};
  ASSERT_OK(file->ReadBack(0, piece));
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(piece.data()), 6), "HEadxx");
  ASSERT_OK(file->Append("too much"));
  ASSERT_OK(file->Truncate(file->size() - 9));
  EXPECT_EQ(file->Truncate(file->size() + 1).code(), ErrorCode::kInternal);
  ASSERT_OK(file->Append(std::string_view("\0", 1)));
  ASSERT_OK(file->Finish(true));
  EXPECT_EQ(ReadAll(folder.Path("a")), "HEad" + large + std::string(5000, '\0'));
  EXPECT_EQ(OutputFile::Create(folder.Path("a")).status().code(), ErrorCode::kIo);
}

TEST(AtomicFile, ReplacesOnCommitOnly) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("a");
  ASSERT_OK(WriteFileAtomically(path, "old"));
  {
    auto file = AtomicFile::Create(path);
    ASSERT_OK(file);
    ASSERT_OK(file->file().Append("new"));
  }
  EXPECT_EQ(ReadAll(path), "old");
  ASSERT_OK(WriteFileAtomically(path, "new"));
  EXPECT_EQ(ReadAll(path), "new");
  EXPECT_THAT(*ListDirectory(folder.Path()), ElementsAre("a"));
  EXPECT_EQ(WriteFileAtomically(folder.Path("no/such/folder"), "x").code(), ErrorCode::kIo);
}

TEST(StagedDirectory, MovesInAndExchanges) {
  const TemporaryFolder folder;
  const std::string target = folder.Path("t");
  for (const std::string content : {"one", "two"}) {
    auto staged = StagedDirectory::Create(target + "/");
    ASSERT_OK(staged);
    WriteAll(staged->path() + "/sub/file", content);
    ASSERT_OK(staged->Commit(true));
    EXPECT_EQ(ReadAll(target + "/sub/file"), content);
  }
  {
    auto abandoned = StagedDirectory::Create(target);
    ASSERT_OK(abandoned);
    WriteAll(abandoned->path() + "/sub/file", "three");
  }
  EXPECT_EQ(ReadAll(target + "/sub/file"), "two");
  EXPECT_THAT(*ListDirectory(folder.Path()), ElementsAre("t"));
}

TEST(StagedDirectory, FollowsALinkToTheTarget) {
  const TemporaryFolder folder;
  WriteAll(folder.Path("elsewhere/t/file"), "old");
  fs::create_directory_symlink("elsewhere/t", folder.Path("link"));
  auto staged = StagedDirectory::Create(folder.Path("link/"));
  ASSERT_OK(staged);
  WriteAll(staged->path() + "/file", "new");
  ASSERT_OK(staged->Commit(false));
  EXPECT_TRUE(fs::is_symlink(folder.Path("link")));
  EXPECT_EQ(ReadAll(folder.Path("elsewhere/t/file")), "new");
}

TEST(RecoverDirectory, PutsTheOldFolderBack) {
  const TemporaryFolder folder;
  WriteAll(folder.Path(".t.old-7-0/file"), "old");
  RecoverDirectory(folder.Path("t"));
  EXPECT_EQ(ReadAll(folder.Path("t/file")), "old");
  // With the target in place, what stands aside is only a leftover.
  WriteAll(folder.Path(".t.old-7-0/file"), "older");
  RecoverDirectory(folder.Path("t"));
  EXPECT_EQ(ReadAll(folder.Path("t/file")), "old");
  EXPECT_THAT(*ListDirectory(folder.Path()), ElementsAre("t"));
}

TEST(RecoverDirectory, LeavesLivingWritersAlone) {
  const TemporaryFolder folder;
  const std::string target = folder.Path("t");
  WriteAll(folder.Path(".t.tmp-1-0/file"), "of a dead writer");
  WriteAll(folder.Path(".other.tmp-1-0/file"), "of another target");
  auto staged = StagedDirectory::Create(target);
  ASSERT_OK(staged);
  WriteAll(staged->path() + "/file", "new");
  const pid_t child = ::fork();
  if (child == 0) {  // another process opens the target meanwhile
    RecoverDirectory(target);
    ::_exit(0);
  }
  ::waitpid(child, nullptr, 0);
  ASSERT_OK(staged->Commit(false));
  EXPECT_EQ(ReadAll(target + "/file"), "new");
  EXPECT_THAT(*ListDirectory(folder.Path()), ElementsAre(".other.tmp-1-0", "t"));
}

}  // namespace
}  // namespace milwright
