#include "serve/shared_engine.h"

#include <condition_variable>
#include <mutex>

namespace milwright {
namespace {

/// A lock that is given in the order of asking; std::mutex may let one thread have it again and again.
class Turns {
 public:
  void lock() {
    std::unique_lock guard(mutex_);
    const uint64_t ticket = next_++;
    changed_.wait(guard, [&] { return ticket == now_; });
  }
  void unlock() {
    {
      const std::lock_guard guard(mutex_);
      ++now_;
    }
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_ = 0;
  uint64_t now_ = 0;
};

struct OpenedPackage {
  std::unique_ptr<PackageEngine> engine;
  Turns turns;
};

class SharedEngine : public PackageEngine {
 public:
  explicit SharedEngine(std::shared_ptr<OpenedPackage> package) : package_(std::move(package)) {}
  Result<State> MakeState() override {
    const std::lock_guard turn(package_->turns);
    return package_->engine->MakeState();
  }
  [[nodiscard]] const ModelSpec& spec() const override { return package_->engine->spec(); }
  Result<TensorMap> Predict(const std::string& function, const TensorMap& inputs, State* state) override {
    const std::lock_guard turn(package_->turns);
    return package_->engine->Predict(function, inputs, state);
  }
  Result<TensorMap> PredictLast(const std::string& function, const TensorMap& inputs, State* state,
                                const std::vector<std::string>& last_rows) override {
    const std::lock_guard turn(package_->turns);
    return package_->engine->PredictLast(function, inputs, state, last_rows);
  }

 private:
  std::shared_ptr<OpenedPackage> package_;
};

struct Packages {
  EngineLoader loader;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<OpenedPackage>> opened;
};

}  // namespace

EngineLoader ShareEngines(EngineLoader loader) {
  auto packages = std::make_shared<Packages>();
  packages->loader = std::move(loader);
  return [packages](const std::string& path) -> Result<std::unique_ptr<PackageEngine>> {
    const std::lock_guard guard(packages->mutex);
    std::shared_ptr<OpenedPackage>& package = packages->opened[path];
    if (package == nullptr) {
      auto fresh = std::make_shared<OpenedPackage>();
      MW_ASSIGN_OR_RETURN(fresh->engine, packages->loader(path));
      package = std::move(fresh);
    }
    return std::unique_ptr<PackageEngine>(std::make_unique<SharedEngine>(package));
  };
}

}  // namespace milwright
