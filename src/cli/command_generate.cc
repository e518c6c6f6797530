#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file_io.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/terminal.h"
#include "llm/session.h"
#include "llm/snapshot.h"
#include "tokenizer/chat_template.h"

namespace milwright::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMaxMessagesBytes = 16 << 20;

// Set by Ctrl-C: the run in progress ends cleanly and the session stays as it is. A signal handler can reach nothing
// else.
volatile std::sig_atomic_t interrupted = 0;

void Interrupt(int) { interrupted = 1; }

// Without SA_RESTART: a read from the terminal returns as well.
void CatchInterrupts() {
  struct sigaction action {};
  action.sa_handler = Interrupt;
  sigaction(SIGINT, &action, nullptr);
}

class Printer {
 public:
  explicit Printer(const GenerateArguments& arguments) : json_(arguments.json) {}

  bool Text(const std::string& piece) {
    if (json_) {
      Event({{"event", "text"}, {"text", piece}});
    } else {
      std::cout << piece << std::flush;
    }
    return interrupted == 0;
  }

  bool Prefill(int64_t done, int64_t total) {
    constexpr int64_t kWidth = 30;
    if (json_) {
      Event({{"event", "prefill"}, {"done", done}, {"total", total}});
    } else if (isatty(STDERR_FILENO) != 0 && total > 64) {
      const int64_t filled = done * kWidth / total;
      std::cerr << fmt::format("\rprefill [{}{}] {}/{}", std::string(static_cast<size_t>(filled), '#'),
                               std::string(static_cast<size_t>(kWidth - filled), ' '), done, total);
      if (done >= total || interrupted != 0) std::cerr << "\r\x1b[K";
      std::cerr << std::flush;
    }
    return interrupted == 0;
  }

  void Finish(const GenerateResult& result) {
    const double decoded = static_cast<double>(result.tokens.size());
    const double rate = result.decode_seconds > 0 ? decoded / result.decode_seconds : 0;
    if (json_) {
      Event({{"event", "end"},
             {"finish", FinishReasonName(result.finish)},
             {"tokens", result.tokens},
             {"prompt_tokens", result.prompt.prompt},
             {"reused", result.prompt.reused},
             {"recomputed", result.prompt.recomputed},
             {"prompt_seconds", result.prompt_seconds},
             {"tokens_per_second", rate}});
      return;
    }
    std::cout << "\n" << std::flush;
    std::cerr << fmt::format(
        "prompt {} tokens ({} reused, {} run in {:.2f} s); {} tokens at {:.1f} tok/s; finish: {}\n",
        result.prompt.prompt, result.prompt.reused, result.prompt.recomputed, result.prompt_seconds,
        result.tokens.size(), rate, FinishReasonName(result.finish));
    if (!result.prompt.why.empty()) std::cerr << "note: " << result.prompt.why << "\n";
  }

 private:
  static void Event(const Json& event) {
    std::cout << event.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  }
  bool json_;
};

GenerateOptions Options(const GenerateArguments& arguments) {
  GenerateOptions options;
  options.max_tokens = arguments.max_tokens;
  options.sampling.temperature = arguments.greedy ? 0 : arguments.temperature;
  options.sampling.top_k = arguments.top_k;
  options.sampling.top_p = arguments.top_p;
  options.sampling.min_p = arguments.min_p;
  options.sampling.repetition_penalty = arguments.repetition_penalty;
  options.sampling.seed = arguments.seed;
  options.stop = arguments.stop;
  options.ignore_eos = arguments.ignore_eos;
  return options;
}

Result<GenerateResult> GenerateText(Session& session, const Tokenizer& tokenizer, const std::string& prompt,
                                    bool special, const GenerateArguments& arguments, Printer& printer) {
  MW_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.Encode(prompt, special));
  const std::vector<int64_t> tokens(ids.begin(), ids.end());
  return milwright::Generate(
      session, tokenizer, tokens, Options(arguments), [&](const std::string& piece) { return printer.Text(piece); },
      [&](int64_t done, int64_t total) { return printer.Prefill(done, total); });
}

class Chat {
 public:
  Chat(Session& session, const Tokenizer& tokenizer, const ChatTemplate& chat, const GenerateArguments& arguments)
      : session_(session), tokenizer_(tokenizer), template_(chat), arguments_(arguments) {
    Clear();
  }

  Status Run() {
    const bool terminal = isatty(STDIN_FILENO) != 0;
    std::string line;
    for (;;) {
      if (terminal) std::cerr << "> " << std::flush;
      interrupted = 0;
      if (!std::getline(std::cin, line)) {
        if (terminal) std::cerr << "\n";
        if (interrupted == 0) return Status::Ok();
        // Ctrl-C at the prompt: nothing runs that could stop.
        std::clearerr(stdin);
        std::cin.clear();
        std::cerr << "(/quit or Ctrl-D to leave)\n";
        continue;
      }
      if (line.empty()) continue;
      if (line == "/quit") return Status::Ok();
      if (line.front() != '/') {
        MW_RETURN_IF_ERROR(Turn(line));
      } else if (const Status status = Command(line); !status.ok()) {
        std::cerr << "milwright: " << status.message() << "\n";
      }
    }
  }

 private:
  void Clear() {
    messages_ = Json::array();
    if (!arguments_.system.empty()) messages_.push_back({{"role", "system"}, {"content", arguments_.system}});
  }

  Status Command(const std::string& line) {
    const size_t space = line.find(' ');
    const std::string name = line.substr(0, space);
    const std::string argument = space == std::string::npos ? std::string() : line.substr(space + 1);
    if (name == "/reset") {
      Clear();
      return session_.Reset();
    }
    if (name == "/save" && !argument.empty()) return Save(argument);
    if (name == "/load" && !argument.empty()) return Load(argument);
    if (name == "/stats") {
      std::cerr << fmt::format("{} of {} tokens held; last turn: {} of {} prompt tokens reused\n",
                               session_.tokens().size(), session_.pipeline().manifest().context_length,
                               last_.prompt.reused, last_.prompt.prompt);
      return Status::Ok();
    }
    return {ErrorCode::kUsage, "commands: /reset, /save FILE, /load FILE, /stats, /quit"};
  }

  // The caches, and beside them the messages that they come from.
  static std::string MessagesPath(const std::string& path) { return path + ".messages.json"; }

  Status Save(const std::string& path) const {
    MW_RETURN_IF_ERROR(SaveSnapshot(session_, path));
    return WriteFileAtomically(MessagesPath(path), messages_.dump(2, ' ', false, Json::error_handler_t::replace));
  }

  Status Load(const std::string& path) {
    MW_ASSIGN_OR_RETURN(const std::string text, ReadFile(MessagesPath(path), kMaxMessagesBytes));
    Json messages = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!messages.is_array()) return {ErrorCode::kUnreadable, MessagesPath(path) + ": is not a list of messages"};
    MW_RETURN_IF_ERROR(LoadSnapshot(session_, path));
    messages_ = std::move(messages);
    return Status::Ok();
  }

  Status Turn(const std::string& line) {
    messages_.push_back({{"role", "user"}, {"content", line}});
    ChatRequest request;
    request.messages = messages_;
    MW_ASSIGN_OR_RETURN(const std::string prompt, template_.Render(request));
    interrupted = 0;
    Printer printer(arguments_);
    auto result = GenerateText(session_, tokenizer_, prompt, false, arguments_, printer);
    if (!result.ok() && interrupted != 0) {  // cancelled in the prefill: the session holds what was run
      messages_.erase(messages_.size() - 1);
      return Status::Ok();
    }
    MW_RETURN_IF_ERROR(result);
    printer.Finish(*result);
    messages_.push_back({{"role", "assistant"}, {"content", result->text}});
    last_ = *std::move(result);
    return Status::Ok();
  }

  Session& session_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  const GenerateArguments& arguments_;
  Json messages_;
  GenerateResult last_;
};

Result<std::string> ReadPrompt(const GenerateArguments& arguments) {
  if (!arguments.prompt.empty()) return arguments.prompt;
  std::stringstream text;
  if (arguments.file.empty()) {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream file(arguments.file, std::ios::binary);
  if (!file) return Status(ErrorCode::kUnreadable, arguments.file + ": cannot be opened");
  text << file.rdbuf();
  return text.str();
}

Status Run(const GenerateArguments& arguments) {
  MW_ASSIGN_OR_RETURN(std::unique_ptr<Pipeline> pipeline,
                      Pipeline::Open(arguments.path, ReadEngineLoader(arguments.engine)));
  MW_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::Load(arguments.path));
  Session session(std::move(pipeline));
  CatchInterrupts();
  if (arguments.chat) {
    MW_ASSIGN_OR_RETURN(const ChatTemplate chat, ChatTemplate::Load(arguments.path));
    return Chat(session, tokenizer, chat, arguments).Run();
  }
  MW_ASSIGN_OR_RETURN(const std::string prompt, ReadPrompt(arguments));
  Printer printer(arguments);
  if (arguments.show_prompt && !arguments.json) std::cout << prompt << std::flush;
  MW_ASSIGN_OR_RETURN(const GenerateResult result, GenerateText(session, tokenizer, prompt, true, arguments, printer));
  printer.Finish(result);
  return Status::Ok();
}

}  // namespace

int Generate(const GenerateArguments& arguments) {
  const Status status = Run(arguments);
  return status.ok() ? kFine : Fail(status);
}

}  // namespace milwright::cli
