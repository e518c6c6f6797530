// The command line: every verb, option, help text and example. The only file that knows CLI11.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "cli/commands.h"
#include "cli/terminal.h"

namespace milwright::cli {
namespace {

constexpr const char* kAbout =
    "Milwright opens, checks, rewrites, builds and runs Core ML packages whose programs keep a KV cache in states.";
constexpr const char* kFooter =
    "Exit codes: 0 fine, 1 findings or a difference, 2 wrong usage, 3 input that does not read.";

// A verb: its parser, and what to run once it has parsed.
struct Verb {
  CLI::App* app;
  std::function<int()> run;
};

class CommandLine {
 public:
  CommandLine() : app_(kAbout, "milwright") {
    app_.footer(kFooter);
    app_.set_version_flag("--version", std::string("milwright ") + MILWRIGHT_VERSION);
    app_.require_subcommand(1);
    app_.get_formatter()->column_width(34);
    AddInfo();
    AddPrint();
    AddRun();
    AddCheck();
    AddExplain();
    AddBuild();
    AddCompress();
    AddVerify();
    AddGenerate();
    AddBench();
    AddRewrite();
    AddDiff();
    AddEqual();
    AddEvidence();
    AddTargets();
    AddPlan();
    AddServe();
  }

  int Main(int argc, const char* const* argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::CallForHelp& request) {
      return app_.exit(request);
    } catch (const CLI::CallForVersion& request) {
      return app_.exit(request);
    } catch (const CLI::ParseError& error) {
      return Explain(error, argc, argv);
    }
    for (const Verb& verb : verbs_) {
      if (verb.app->parsed()) return verb.run();
    }
    return kUsage;
  }

 private:
  template <typename Arguments>
  CLI::App* Add(const char* name, const char* about, const char* example, Arguments& arguments,
                int (*run)(const Arguments&)) {
    CLI::App* verb = app_.add_subcommand(name, about);
    verb->footer(std::string("Example:\n  ") + example);
    verb->get_formatter()->column_width(34);
    verbs_.push_back({verb, [&arguments, run] { return run(arguments); }});
    return verb;
  }

  static void AddPath(CLI::App* verb, std::string& path) {
    verb->add_option("PATH", path, "A .mlpackage, .mlmodelc or .mlmodel")->required();
  }
  static void AddEngine(CLI::App* verb, EngineArguments& engine) {
    verb->add_option("--engine", engine.engine,
                     "fast (fp32 inside fusions), strict (rounds as the reference), reference (the interpreter)")
        ->capture_default_str()
        ->check(CLI::IsMember({"fast", "strict", "reference"}));
    verb->add_option("--threads", engine.threads, "Threads of the engine; 0: one for each core")
        ->capture_default_str()
        ->check(CLI::Range(0, 256));
    verb->add_option("--weights", engine.weights, "Read weights where they are mapped, or from a copy; auto measures")
        ->capture_default_str()
        ->check(CLI::IsMember({"auto", "map", "copy"}));
    verb->add_option("--kernels", engine.kernels, "Instruction set; default: MILWRIGHT_KERNELS, else the fastest")
        ->check(CLI::IsMember({"scalar", "avx2", "avx512", "neon"}));
  }
  static void AddJson(CLI::App* verb, bool& json) { verb->add_flag("--json", json, "Print JSON"); }

  void AddInfo() {
    CLI::App* verb = Add("info", "Show what is in a package: functions, features, states, ops, weights",
                         "milwright info Model.mlpackage", info_, Info);
    AddPath(verb, info_.path);
    AddJson(verb, info_.json);
  }

  void AddPrint() {
    CLI::App* verb = Add("print", "Print the program as MIL text, weights elided",
                         "milwright print Model.mlpackage --function decode", print_, Print);
    AddPath(verb, print_.path);
    verb->add_option("--function", print_.function, "Only this function");
    verb->add_flag("--full", print_.full, "Write all immediate values, so that the text parses back");
  }

  void AddRun() {
    CLI::App* verb = Add("run", "Run predictions on the CPU with Core ML's state semantics",
                         "milwright run Model.mlpackage --input steps.npz --expect steps.npz --atol 3e-3", run_, Run);
    AddPath(verb, run_.path);
    verb->add_option("--input", run_.inputs,
                     "file.npz (names, or step{i}/in/NAME for several steps), file.npy for the only input, or "
                     "NAME=file.npy");
    verb->add_option("--fill", run_.fill, "Value of inputs that are not given: zero, random or random:SEED");
    verb->add_option("--steps", run_.steps, "Number of steps; inputs of one step serve all")
        ->check(CLI::PositiveNumber);
    verb->add_option("--function", run_.function, "Function to run (default: the package's default function)");
    verb->add_option("--state-in", run_.state_in, "States before the first step, from a .npz by name");
    verb->add_option("--state-out", run_.state_out, "Write the states after the last step to a .npz");
    verb->add_option("--output", run_.output, "Write inputs, outputs and states of every step to a .npz");
    verb->add_option(
        "--expect", run_.expect,
        "Compare outputs and states with step{i}/out/NAME and step{i}/state/NAME of a .npz; without --input "
        "its step{i}/in/NAME are the inputs");
    verb->add_option("--atol", run_.atol, "Absolute tolerance of --expect")->check(CLI::NonNegativeNumber);
    verb->add_option("--rtol", run_.rtol, "Relative tolerance of --expect")->check(CLI::NonNegativeNumber);
    verb->add_option("--state-atol", run_.state_atol, "Absolute tolerance for states (default: --atol)");
    verb->add_option("--state-rtol", run_.state_rtol, "Relative tolerance for states (default: --rtol)");
    verb->add_flag("--trace", run_.trace, "Print the range of every intermediate value");
    AddEngine(verb, run_.engine);
    AddJson(verb, run_.json);
  }

  void AddCheck() {
    CLI::App* verb = Add("check", "Say what is wrong with a package, and what will be on a compute unit",
                         "milwright check Model.mlpackage", check_, Check);
    verb->add_option("PATH", check_.path, "A .mlpackage, .mlmodelc or .mlmodel, or a folder of packages")->required();
    verb->add_option("--target", check_.target,
                     "Device, OS and compute unit to check for (see 'milwright targets'; default: any)");
    verb->add_option("--evidence", check_.evidence,
                     "Observations of your own, beside the ledger (may be given several times)")
        ->allow_extra_args(false);
    verb->add_option("--fail-on", check_.fail_on,
                     "Exit with 1 from this severity on: note, warning, error (default: error)")
        ->check(CLI::IsMember({"note", "warning", "error"}));
    CLI::Option* format = verb->add_option("--format", check_.format, "text, json, sarif (2.1.0), github or html")
                              ->check(CLI::IsMember({"text", "json", "sarif", "github", "html"}))
                              ->capture_default_str();
    verb->add_option("-o,--output", check_.output,
                     "Write the report to this file, and one line to the terminal; with --fix: the package to write");
    verb->add_flag("--json", check_.json, "The same as --format json")->excludes(format);
    CLI::Option* fix = verb->add_flag(
        "--fix", check_.fix,
        "Apply the safe fixes of warnings and errors, prove that the result computes the same, and write it");
    verb->add_flag("--in-place", check_.in_place, "Let --fix replace the package itself")->needs(fix);
    verb->add_option("--steps", check_.steps,
                     "Steps of each function by which --fix proves equality (default: 16, and past the turn of a ring)")
        ->needs(fix)
        ->check(CLI::Range(16, 1 << 20));
    verb->add_option("--config", check_.config,
                     "Configuration instead of the milwright.toml in or above the package's folder (docs/check.md)");
    verb->add_option("--baseline", check_.baseline, "Accept the findings that this file lists");
    verb->add_option("--write-baseline", check_.write_baseline, "Accept today's findings: list them in this file")
        ->excludes(fix);
  }

  void AddExplain() {
    CLI::App* verb = Add("explain", "Print the page of a rule", "milwright explain MW205", explain_, cli::Explain);
    verb->add_option("RULE", explain_.rule, "Rule id or slug")->required();
  }

  void AddBuild() {
    CLI::App* verb =
        Add("build", "Build packages from a Hugging Face checkpoint",
            "milwright build Qwen3-0.6B -o qwen3 --state-layout unified --functions decode,prefill:16", build_, Build);
    verb->add_option("CHECKPOINT", build_.checkpoint, "Folder with config.json, *.safetensors and tokenizer.json")
        ->required();
    verb->add_option("-o,--output", build_.output, "Folder to write packages and milwright.json to")->required();
    verb->add_option("--contract", build_.contract,
                     "Names and shapes that the host expects: simple, coreml-llm, hf, anemll, or a file "
                     "(docs/contract-files.md)")
        ->capture_default_str();
    verb->add_option(
        "--state-layout", build_.layout,
        "kv-pair, unified[:interleaved|:split], per-layer, by-role[:...], explicit-io[:whole|:new][:LAYOUT]; default: "
        "the contract's");
    verb->add_option("--update", build_.update,
                     "How caches are written: slice, mask, ring, shift; default: the contract's");
    verb->add_option("--hybrid-caches", build_.hybrid_caches, "Conv and recurrent caches: explicit or state");
    verb->add_option("--style", build_.style, "ane (1x1 convolutions, rank 4) or plain (linear, fused attention)")
        ->capture_default_str();
    verb->add_option("--functions", build_.functions, "Functions with their query lengths: decode[:1],prefill:T")
        ->capture_default_str();
    verb->add_flag("--separate-functions", build_.separate_functions,
                   "A package for each function instead of one for all");
    verb->add_option("--context-length", build_.context_length, "Capacity of the caches in tokens")
        ->capture_default_str();
    verb->add_option("--chunks", build_.chunks, "Split the layers into N packages, or by weight bytes: 4, 900MB")
        ->capture_default_str();
    verb->add_option("--embedding", build_.embedding, "in-graph or sidecar-fp16; default: the contract's");
    verb->add_option("--head", build_.head, "logits, argmax or topk:K; default: the contract's");
    verb->add_option("--head-splits", build_.head_splits, "Slices of the vocabulary (contract anemll)")
        ->capture_default_str();
    verb->add_option("--compute", build_.compute, "fp16 or fp32")->capture_default_str();
    verb->add_option("--cache-dtype", build_.cache_dtype,
                     "Data type of explicit caches: fp16 or fp32; default: that of --compute");
    verb->add_option("--hybrid-dtype", build_.hybrid_dtype,
                     "Data type of explicit conv and recurrent caches: fp16 or fp32; default: that of --compute");
    verb->add_option(
        "--hybrid-precision", build_.hybrid_precision,
        "Conv and recurrent caches in fp16: halves (sums of two numbers, near fp32) or rounded; default: halves "
        "with --compute fp32, else rounded");
    verb->add_option("--min-target", build_.min_target, "iOS18 or iOS26")->capture_default_str();
    verb->add_option("--quantize", build_.quantize, "Compress the weights: as `milwright compress --quantize`");
    AddLayers(verb, build_.layers);
    AddThreads(verb, build_.threads);
    verb->add_flag("--no-hash", build_.no_hash, "Leave the checkpoint's hash out of the manifest");
    AddJson(verb, build_.json);
  }

  static void AddLayers(CLI::App* verb, std::vector<std::string>& layers) {
    verb->add_option("--layer", layers,
                     "REGEX=FORMAT for weights whose name matches (the first match decides; none keeps a weight)");
  }

  static void AddThreads(CLI::App* verb, int& threads) {
    verb->add_option("--threads", threads, "Threads of the compression; 0: one for each core")
        ->capture_default_str()
        ->check(CLI::Range(0, 256));
  }

  void AddCompress() {
    CLI::App* verb = Add("compress", "Quantize, palettize or prune the weights of a package or a built folder",
                         "milwright compress qwen3 -o qwen3-lut4 --quantize lut4:group16", compress_, Compress);
    verb->add_option("PATH", compress_.path, "A package, or a folder that `milwright build` wrote")->required();
    verb->add_option("-o,--output", compress_.output, "The package or folder to write")->required();
    verb->add_option("--quantize", compress_.quantize,
                     "int8, int4 with :tensor, :channel, :blockN, :asym; lut1..lut8 with :tensor, :groupN, :scale, "
                     ":int8; sparse:SHARE; none")
        ->required();
    AddLayers(verb, compress_.layers);
    AddThreads(verb, compress_.threads);
    verb->add_option("--worst", compress_.worst, "Show so many of the worst weights")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    AddJson(verb, compress_.json);
  }

  void AddVerify() {
    CLI::App* verb = Add("verify", "Compare the logits of a built folder with golden ones, or measure perplexity",
                         "milwright verify qwen3 --golden golden.safetensors --atol 0.05", verify_, Verify);
    verb->add_option("DIR", verify_.path, "A folder that `milwright build` wrote")->required();
    verb->add_option("--golden", verify_.golden,
                     "Golden file (.safetensors or .npz): input_ids, gen_ids, full_logits or logits");
    verb->add_option("--against", verify_.against, "Another built folder to compare with");
    verb->add_option("--tokens", verify_.tokens,
                     "JSON array of token ids (or of such arrays): for --against, or for perplexity");
    verb->add_option("--text", verify_.text, "Text file for perplexity");
    verb->add_option("--windows", verify_.windows, "Only the first N sequences of the perplexity")
        ->check(CLI::PositiveNumber);
    verb->add_flag("--step-by-step", verify_.step_by_step,
                   "One token a call, also where a prefill function could take more");
    verb->add_flag("--per-step", verify_.per_step, "Print a line for every position");
    verb->add_option("--top-k", verify_.top_k, "k of the top-k agreement")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    verb->add_option("--atol", verify_.atol,
                     "Gate: largest absolute error; top-1 may differ only where the margin is below twice this");
    verb->add_option("--max-kl", verify_.max_kl, "Gate: mean KL divergence in nats");
    verb->add_option("--min-cosine", verify_.min_cosine, "Gate: smallest cosine");
    verb->add_option("--min-top-1", verify_.min_top_1, "Gate: share of positions with the same top token");
    verb->add_option("--max-perplexity", verify_.max_perplexity, "Gate: perplexity");
    AddEngine(verb, verify_.engine);
    AddJson(verb, verify_.json);
  }

  void AddGenerate() {
    CLI::App* verb = Add("generate", "Generate text with a built folder",
                         "milwright generate qwen3 --prompt \"ROMEO:\" --greedy --max-tokens 60", generate_, Generate);
    verb->add_option("DIR", generate_.path, "A folder that `milwright build` wrote")->required();
    verb->add_option("-p,--prompt", generate_.prompt, "The prompt; without --prompt and --file it is read from stdin");
    verb->add_option("-f,--file", generate_.file, "Read the prompt from a file");
    verb->add_flag("--chat", generate_.chat,
                   "Chat over several turns: lines from stdin, /reset, /save FILE, /load FILE, /stats, /quit");
    verb->add_option("--system", generate_.system, "System message of the chat");
    verb->add_flag("--greedy", generate_.greedy, "Always take the most probable token");
    verb->add_option("--temperature", generate_.temperature, "0 is greedy")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    verb->add_option("--top-k", generate_.top_k, "Keep the K most probable tokens (0: all)")->capture_default_str();
    verb->add_option("--top-p", generate_.top_p, "Keep the most probable tokens that sum to P")->capture_default_str();
    verb->add_option("--min-p", generate_.min_p, "Keep tokens at least P times as probable as the best")
        ->capture_default_str();
    verb->add_option("--repetition-penalty", generate_.repetition_penalty, "Above 1 discourages repeating tokens")
        ->capture_default_str();
    verb->add_option("--seed", generate_.seed, "Seed of the sampling")->capture_default_str();
    verb->add_option("-n,--max-tokens", generate_.max_tokens, "Tokens to generate at most")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    verb->add_option("--stop", generate_.stop, "End before this text (may be given several times)");
    verb->add_flag("--ignore-eos", generate_.ignore_eos, "Go on behind the end token");
    verb->add_flag("--show-prompt", generate_.show_prompt, "Print the prompt before the text");
    verb->add_flag("--json", generate_.json, "Print events as JSON lines");
    AddEngine(verb, generate_.engine);
  }

  void AddBench() {
    CLI::App* verb = Add("bench", "Measure decode, prefill and what limits them",
                         "milwright bench qwen3 --fill 0,256 --profile", bench_, Bench);
    verb->add_option("DIR", bench_.path, "A folder that `milwright build` wrote (--cache-modes: a checkpoint)")
        ->required();
    verb->add_option("--fill", bench_.fills, "Positions at which decode is measured; default: empty, half, full")
        ->delimiter(',');
    verb->add_option("--tokens", bench_.tokens, "Steps of one repetition")
        ->capture_default_str()
        ->check(CLI::Range(int64_t{1}, int64_t{100000}));
    verb->add_option("--repetitions", bench_.repetitions, "Repetitions; medians and extremes are printed")
        ->capture_default_str()
        ->check(CLI::Range(1, 1000));
    verb->add_option("--prefill", bench_.prefill, "Tokens of the prefill; 0: not measured")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    verb->add_option("--bandwidth-mb", bench_.bandwidth_mb, "Megabytes read to measure the memory's bandwidth; 0: not")
        ->capture_default_str()
        ->check(CLI::Range(int64_t{0}, int64_t{100000}));
    verb->add_flag("--profile", bench_.profile, "Print what the steps of a token cost");
    verb->add_option("--trace", bench_.trace, "Write the profile as a Chrome trace to this file");
    verb->add_flag("--cache-modes", bench_.cache_modes,
                   "Build a checkpoint with states and with explicit caches, and compare what a step costs");
    verb->add_option("--context-lengths", bench_.context_lengths, "Context lengths of --cache-modes")
        ->delimiter(',')
        ->capture_default_str();
    verb->add_option("--quantize", bench_.quantize, "Weights of --cache-modes, as `milwright compress --quantize`");
    AddEngine(verb, bench_.engine);
    AddJson(verb, bench_.json);
  }

  void AddRewrite() {
    CLI::App* verb =
        Add("rewrite", "Change a package by passes, and write the result as a new package",
            "milwright rewrite Model.mlpackage -o New.mlpackage --pass dead-code-elimination --verify-equal", rewrite_,
            Rewrite);
    verb->add_option("PATH", rewrite_.path, "A .mlpackage, .mlmodelc or .mlmodel");
    verb->add_option("-o,--output", rewrite_.output, "The package to write; an existing one is replaced whole");
    verb->add_option("--pass", rewrite_.passes,
                     "Passes to run in order, NAME,NAME=KEY:VALUE;KEY:VALUE (may be given more than once)")
        ->allow_extra_args(false);
    verb->add_flag("--verify-each", rewrite_.verify_each, "Verify the program after every pass");
    verb->add_flag("--print-changed", rewrite_.print_changed, "Print what each pass changed");
    verb->add_flag("--time-passes", rewrite_.time_passes, "Print how long each pass took");
    verb->add_flag("--verify-equal", rewrite_.verify_equal,
                   "Run the package before and after on the same inputs; write only when they are equal");
    verb->add_flag("--list-passes", rewrite_.list_passes, "Print every pass with its options");
  }

  static void AddPair(CLI::App* verb, std::string& a, std::string& b) {
    verb->add_option("A", a, "A .mlpackage, .mlmodelc or .mlmodel")->required();
    verb->add_option("B", b, "The package to compare with it")->required();
  }

  void AddDiff() {
    CLI::App* verb = Add("diff", "Show what differs between two programs, operation by operation",
                         "milwright diff Old.mlpackage New.mlpackage", diff_, Diff);
    AddPair(verb, diff_.a, diff_.b);
    AddJson(verb, diff_.json);
  }

  void AddEqual() {
    CLI::App* verb = Add("equal", "Run two packages on the same inputs and compare all they give and remember",
                         "milwright equal Old.mlpackage New.mlpackage --steps 32 --atol 1e-3", equal_, Equal);
    AddPair(verb, equal_.a, equal_.b);
    verb->add_option("--steps", equal_.steps, "Steps of each function")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    verb->add_option("--atol", equal_.atol, "Absolute tolerance; 0: bit exact")->check(CLI::NonNegativeNumber);
    verb->add_option("--rtol", equal_.rtol, "Relative tolerance")->check(CLI::NonNegativeNumber);
    verb->add_option("--seed", equal_.seed, "Seed of the inputs")->check(CLI::NonNegativeNumber);
    verb->add_option("--query-length", equal_.query_length, "Rows of a step where the package leaves them open")
        ->check(CLI::PositiveNumber);
    verb->add_option("--input-kind", equal_.input_kinds,
                     "NAME=KIND (ring-position:W, cache:OUTPUT): what an input stands for, where that is not found")
        ->allow_extra_args(false);
    verb->add_option("--function", equal_.functions, "Only this function: NAME, or A's name = B's name")
        ->allow_extra_args(false);
    verb->add_option("--rename", equal_.names, "A's name of a feature = B's name")->allow_extra_args(false);
    AddJson(verb, equal_.json);
  }

  void AddEvidence() {
    CLI::App* verb = Add("evidence", "Read the ledger of known outcomes, or add to one of your own",
                         "milwright evidence show lfm2-2state-baseline\n"
                         "  milwright evidence add Model.mlpackage --outcome fail-at-load:-14 --device 'iPhone 17 Pro' "
                         "--os 'iOS 26.1' --compute-unit cpuAndNeuralEngine --source 'CI run 812' --ledger ours.json",
                         evidence_, Evidence);
    verb->add_option("WHAT", evidence_.what, "list, show, hypotheses or add")
        ->required()
        ->check(CLI::IsMember({"list", "show", "hypotheses", "add"}));
    verb->add_option("ID", evidence_.id, "The observation or hypothesis to show; the package to add an observation of");
    AddJson(verb, evidence_.json);
    verb->add_option("--ledger", evidence_.ledger, "A file of your own: add adds to it, list and show read it too");
    verb->add_option("--outcome", evidence_.outcome,
                     "add: ok, slow, wrong-numerics, fallback, fail-at-load[:CODE] or fail-at-predict[:CODE]");
    verb->add_option("--device", evidence_.device, "add: as in 'iPhone 17 Pro' or 'Mac M4'");
    verb->add_option("--os", evidence_.os, "add: as in 'iOS 26.1'");
    verb->add_option("--compute-unit", evidence_.compute_unit, "add: the compute units that were asked for")
        ->check(CLI::IsMember({"cpuAndNeuralEngine", "all", "cpuAndGPU", "cpuOnly", "unknown"}));
    verb->add_option("--source", evidence_.source, "add: where it was seen: a URL, a ticket, a log");
    verb->add_option("--toolchain", evidence_.toolchain, "add: what built the package");
    verb->add_option("--function", evidence_.function, "add: the function that was run (the default function)");
    verb->add_option("--message", evidence_.message, "add: the error text");
    verb->add_option("--note", evidence_.note, "add: what else should be known");
    verb->add_option("--date", evidence_.date, "add: YYYY-MM-DD (today)");
    verb->add_option("--id", evidence_.row_id, "add: the id of the observation (made from the package's name)");
  }

  void AddTargets() {
    CLI::App* verb = Add("targets", "List the targets of `check`, and what their rules rest on", "milwright targets",
                         targets_, Targets);
    AddJson(verb, targets_.json);
  }

  void AddPlan() {
    CLI::App* verb = Add("plan", "Predict which compute unit takes each operation, or compare with a real compute plan",
                         "milwright plan Model.mlpackage --target ane-macos26 --max-non-ane 5%", plan_, Plan);
    AddPath(verb, plan_.path);
    verb->add_option("--target", plan_.target, "Compute unit and OS: cpu or one of the ane-... targets")
        ->capture_default_str();
    verb->add_option("--function", plan_.function, "Only this function");
    verb->add_option("--import", plan_.import,
                     "A real compute plan: JSON of tools/export_compute_plan.py, or analytics.mil "
                     "(docs/compute-plan.md)");
    verb->add_option("--max-non-ane", plan_.max_non_ane,
                     "Exit with 1 when a larger part of the dispatchable operations is not on the ANE: 5% or 0.05");
    AddJson(verb, plan_.json);
  }

  void AddServe() {
    CLI::App* verb = Add("serve", "Serve a built folder over HTTP with OpenAI's completion API (docs/serve.md)",
                         "milwright serve qwen3 --port 8080", serve_, Serve);
    verb->add_option("DIR", serve_.path, "A folder that `milwright build` wrote")->required();
    verb->add_option("--host", serve_.host, "Address to listen on; there is no authentication")->capture_default_str();
    verb->add_option("--port", serve_.port, "0: any free port, which is printed")
        ->capture_default_str()
        ->check(CLI::Range(0, 65535));
    verb->add_option("--sessions", serve_.sessions, "Conversations whose caches are kept; the oldest makes room")
        ->capture_default_str()
        ->check(CLI::Range(1, 4096));
    verb->add_option("--parallel", serve_.parallel, "Answers in the making at a time, taking turns call by call")
        ->capture_default_str()
        ->check(CLI::Range(1, 64));
    verb->add_option("--queue", serve_.queue, "Requests that may wait; more are refused with 429")
        ->capture_default_str()
        ->check(CLI::Range(0, 4096));
    verb->add_option("--max-tokens-limit", serve_.max_tokens_limit, "Most tokens of an answer, whatever a request asks")
        ->capture_default_str()
        ->check(CLI::PositiveNumber);
    verb->add_option("--request-bytes", serve_.request_bytes, "Longest body of a request; longer ones get 413")
        ->capture_default_str()
        ->check(CLI::Range(1024, 1 << 30));
    AddEngine(verb, serve_.engine);
  }

  // One line that says what is wrong, with the nearest word that would have been right.
  int Explain(const CLI::ParseError& error, int argc, const char* const* argv) {
    std::string message = error.what();
    std::vector<std::string> known;
    std::string word;
    const CLI::App* verb = nullptr;
    for (const Verb& candidate : verbs_) {
      known.push_back(candidate.app->get_name());
      if (argc > 1 && candidate.app->get_name() == argv[1]) verb = candidate.app;
    }
    if (argc > 1 && verb == nullptr && argv[1][0] != '-') {
      word = argv[1];
      message = "there is no verb '" + word + "'";
    } else if (verb != nullptr && dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
      known.clear();
      for (const CLI::Option* option : verb->get_options()) {
        for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
      }
      for (int i = 2; i < argc && word.empty(); ++i) {
        const std::string candidate = std::string(argv[i]).substr(0, std::string(argv[i]).find('='));
        if (candidate.starts_with("--") && std::find(known.begin(), known.end(), candidate) == known.end())
          word = candidate;
      }
      if (!word.empty()) message = "there is no option '" + word + "'";
    }
    const std::string nearest = word.empty() ? std::string() : NearestWord(word, known);
    if (!nearest.empty()) message += "; did you mean '" + nearest + "'?";
    std::fprintf(stderr, "milwright: error: %s\nRun 'milwright %s--help' for what it takes.\n", message.c_str(),
                 verb != nullptr ? (verb->get_name() + " ").c_str() : "");
    return kUsage;
  }

  CLI::App app_;
  std::vector<Verb> verbs_;
  InfoArguments info_;
  PrintArguments print_;
  RunArguments run_;
  CheckArguments check_;
  ExplainArguments explain_;
  BuildArguments build_;
  CompressArguments compress_;
  VerifyArguments verify_;
  GenerateArguments generate_;
  BenchArguments bench_;
  RewriteArguments rewrite_;
  DiffArguments diff_;
  EqualArguments equal_;
  EvidenceArguments evidence_;
  TargetsArguments targets_;
  PlanArguments plan_;
  ServeArguments serve_;
};

}  // namespace

int Main(int argc, const char* const* argv) { return CommandLine().Main(argc, argv); }

int Fail(const Status& status) {
  std::fprintf(stderr, "milwright: error: %s\n", status.message().c_str());
  switch (status.code()) {
    case ErrorCode::kUsage:
      return kUsage;
    case ErrorCode::kUnreadable:
    case ErrorCode::kInvalidProgram:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      return kUnreadable;
    default:
      return kFindings;
  }
}

}  // namespace milwright::cli
