// Running something in a child process that is killed at a chosen system call.
#ifndef MILWRIGHT_TESTS_SUPPORT_KILL_AT_H_
#define MILWRIGHT_TESTS_SUPPORT_KILL_AT_H_

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace milwright::testing {

enum class End { kFinished, kFailed, kKilled, kNoTracing };

/// Runs `work` in a child and kills it at its `stop`-th system call boundary. Each call has two, entry and exit, of
/// which an entry leaves the same files as the exit before it.
inline End RunAndKill(const std::function<bool()>& work, int stop) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(3);
    ::raise(SIGSTOP);
    ::_exit(work() ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) return End::kNoTracing;
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD);
  for (int calls = 0; calls < stop; ++calls) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
    if (WIFEXITED(status)) return WEXITSTATUS(status) == 0 ? End::kFinished : End::kFailed;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, &status, 0);
  return End::kKilled;
}

}  // namespace milwright::testing

#endif  // MILWRIGHT_TESTS_SUPPORT_KILL_AT_H_
