// The verbs of the command line: what each takes, and the function that runs it. A thin layer: argument parsing stands
// in arguments.cc, one file per verb prints, everything else is the library's.
#ifndef MILWRIGHT_CLI_COMMANDS_H_
#define MILWRIGHT_CLI_COMMANDS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "milwright/status.h"

namespace milwright {
struct CompressOptions;
struct CompressReport;
}  // namespace milwright

namespace milwright::cli {

/// Exit codes (every verb): fine; findings or a difference; wrong usage; input that does not read.
enum ExitCode : int { kFine = 0, kFindings = 1, kUsage = 2, kUnreadable = 3 };

/// Prints "milwright: error: ..." to stderr and gives the exit code that fits.
int Fail(const Status& status);

/// How packages are run.
struct EngineArguments {
  std::string engine = "fast";   ///< "fast", "strict", "reference"
  int threads = 0;               ///< 0: one for each core
  std::string weights = "auto";  ///< "auto", "map", "copy"
  std::string kernels;           ///< empty: MILWRIGHT_KERNELS, else the fastest
};

struct InfoArguments {
  std::string path;
  bool json = false;
};
int Info(const InfoArguments& arguments);

struct PrintArguments {
  std::string path;
  std::string function;
  bool full = false;
};
int Print(const PrintArguments& arguments);

struct RunArguments {
  std::string path;
  std::vector<std::string> inputs;  ///< file.npz, file.npy, name=file.npy
  std::string fill;                 ///< "", "zero", "random", "random:SEED"
  int steps = 0;                    ///< 0: as many as the inputs have
  std::string function;
  std::string state_in;
  std::string state_out;
  std::string output;
  std::string expect;
  double atol = 0;
  double rtol = 0;
  double state_atol = -1;  ///< negative: as atol
  double state_rtol = -1;
  bool trace = false;
  bool json = false;
  EngineArguments engine{"reference", 0, "auto", ""};
};
int Run(const RunArguments& arguments);

struct CheckArguments {
  std::string path;
  std::string target;                 ///< empty: as milwright.toml says, else "any"
  std::string fail_on;                ///< empty: as milwright.toml says, else "error"
  std::vector<std::string> evidence;  ///< files of observations beside the compiled-in ledger
  std::string format = "text";        ///< text, json, sarif, github, html
  std::string output;                 ///< of the report (empty: stdout), with fix: of the package
  bool json = false;                  ///< the same as format "json"
  bool fix = false;
  bool in_place = false;
  int steps = 0;       ///< of the comparison behind fix; 0: as many as it needs
  std::string config;  ///< empty: the milwright.toml around the package
  std::string baseline;
  std::string write_baseline;
};
int Check(const CheckArguments& arguments);

struct ExplainArguments {
  std::string rule;
};
int Explain(const ExplainArguments& arguments);

struct BuildArguments {
  std::string checkpoint;
  std::string output;
  std::string contract = "simple";
  std::string layout;
  std::string update;
  std::string hybrid_caches;
  std::string style = "plain";
  std::string functions = "decode:1";
  bool separate_functions = false;
  int64_t context_length = 512;
  std::string chunks = "1";
  std::string embedding;
  std::string head;
  int64_t head_splits = 1;
  std::string compute = "fp16";
  std::string cache_dtype;
  std::string hybrid_dtype;
  std::string hybrid_precision;
  std::string min_target = "iOS18";
  std::string quantize;
  std::vector<std::string> layers;
  int threads = 0;
  bool no_hash = false;
  bool json = false;
};
int Build(const BuildArguments& arguments);

struct CompressArguments {
  std::string path;
  std::string output;
  std::string quantize;
  std::vector<std::string> layers;
  int threads = 0;
  int worst = 5;
  bool json = false;
};
int Compress(const CompressArguments& arguments);

struct VerifyArguments {
  std::string path;
  std::string golden;
  std::string against;
  std::string tokens;
  std::string text;
  int windows = 0;  ///< 0: all
  bool step_by_step = false;
  bool per_step = false;
  int64_t top_k = 5;
  double atol = -1;  ///< gates; negative: not asked for
  double max_kl = -1;
  double min_cosine = -1;
  double min_top_1 = -1;
  double max_perplexity = -1;
  bool json = false;
  EngineArguments engine{"reference", 0, "auto", ""};
};
int Verify(const VerifyArguments& arguments);

struct GenerateArguments {
  std::string path;
  std::string prompt;
  std::string file;
  bool chat = false;
  std::string system;
  bool greedy = false;
  double temperature = 0.7;
  int top_k = 0;
  double top_p = 1;
  double min_p = 0;
  double repetition_penalty = 1;
  uint64_t seed = 0;
  int64_t max_tokens = 128;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool show_prompt = false;
  bool json = false;
  EngineArguments engine;
};
int Generate(const GenerateArguments& arguments);
struct BenchArguments {
  std::string path;
  std::vector<int64_t> fills;
  int64_t tokens = 8;
  int repetitions = 5;
  int64_t prefill = 128;
  int64_t bandwidth_mb = 1000;
  bool profile = false;
  std::string trace;
  bool cache_modes = false;
  std::vector<int64_t> context_lengths = {512, 1024, 2048};
  std::string quantize;
  bool json = false;
  EngineArguments engine;
};
int Bench(const BenchArguments& arguments);

struct RewriteArguments {
  std::string path;
  std::string output;
  std::vector<std::string> passes;  ///< "name,name=key:value;key:value", run in order
  bool verify_each = false;
  bool print_changed = false;
  bool time_passes = false;
  bool verify_equal = false;
  bool list_passes = false;
};
int Rewrite(const RewriteArguments& arguments);

struct DiffArguments {
  std::string a;
  std::string b;
  bool json = false;
};
int Diff(const DiffArguments& arguments);

struct EqualArguments {
  std::string a;
  std::string b;
  int steps = 16;
  double atol = 0;
  double rtol = 0;
  uint64_t seed = 0;
  int64_t query_length = 0;
  std::vector<std::string> input_kinds;  ///< NAME=KIND
  std::vector<std::string> functions;    ///< NAME or A=B
  std::vector<std::string> names;        ///< A=B
  bool json = false;
};
int Equal(const EqualArguments& arguments);

/// `--quantize`, `--layer` and `--threads` as options, and the table of what compression did; for `compress` and
/// `build`.
Result<CompressOptions> ReadCompression(const std::string& format, const std::vector<std::string>& layers, int threads);
void PrintCompression(const CompressReport& report, size_t worst);
struct EvidenceArguments {
  std::string what;  ///< list, show, hypotheses, add
  std::string id;    ///< of show: an observation or a hypothesis; of add: a package
  bool json = false;
  std::string ledger;  ///< a file of one's own
  // Of add:
  std::string outcome;
  std::string device;
  std::string os;
  std::string compute_unit;
  std::string source;
  std::string toolchain;
  std::string function;
  std::string message;
  std::string note;
  std::string date;    ///< empty: today
  std::string row_id;  ///< empty: from the package's name and the compute unit
};
int Evidence(const EvidenceArguments& arguments);

struct TargetsArguments {
  bool json = false;
};
int Targets(const TargetsArguments& arguments);

struct PlanArguments {
  std::string path;
  std::string target = "ane-macos27-m4";
  std::string function;     ///< empty: all
  std::string import;       ///< a real compute plan to compare with
  std::string max_non_ane;  ///< "5%" or "0.05"; empty: no gate
  bool json = false;
};
int Plan(const PlanArguments& arguments);

struct ServeArguments {
  std::string path;
  std::string host = "127.0.0.1";
  int port = 8080;  ///< 0: any
  size_t sessions = 8;
  size_t parallel = 2;
  size_t queue = 64;
  int64_t max_tokens_limit = 4096;
  size_t request_bytes = 1 << 20;
  EngineArguments engine;
};
int Serve(const ServeArguments& arguments);

/// Parses and runs; the whole program but for main().
int Main(int argc, const char* const* argv);

}  // namespace milwright::cli

#endif  // MILWRIGHT_CLI_COMMANDS_H_
