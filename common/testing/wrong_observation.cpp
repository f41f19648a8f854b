#include <base/whole_file.h>
#include <testing/wrong_observation.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace fsdp {
namespace {

void keep(const RankRun& run, int rank, nlohmann::json wrong) {
  const char* const folder = std::getenv("FSDP_RECORD");
  if (folder == nullptr || run.recorded_as() < 0) return;
  const std::filesystem::path file = std::filesystem::path(folder) / "wrong";
  if (std::filesystem::exists(file)) return;
  wrong["run"] = run.recorded_as();
  wrong["rank"] = rank;
  // kReplace: dump() replaces bytes that are not UTF-8 instead of throwing.
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  write_whole_file(file, wrong.dump(-1, ' ', false, kReplace));
}

}  // namespace

void keep_wrong(const RankRun& run, int rank, const std::string& name,
                const nlohmann::json& expected) {
  const nlohmann::json& actual = run.at(rank, name);
  nlohmann::json wrong{{"name", name}, {"text", difference(actual, expected)}};
  if (const auto element = first_wrong_element(actual, expected)) {
    wrong["element"] = element->index;
    wrong["place"] = element->place;
    wrong["is"] = element->is;
    wrong["expected"] = element->expected;
    if (element->right >= 0) wrong["right"] = element->right;
  } else if (const auto place = run.place_of_call(rank, name, expected)) {
    wrong["call"] = run.calls_before(rank, place->step);
    wrong["remark"] = place->remark;
  } else if (actual.is_number() && expected.is_number()) {
    wrong["is"] = actual;
    wrong["expected"] = expected;
  }
  keep(run, rank, wrong);
}

void keep_wrong(const RankRun& run, int rank, const std::string& name, int64_t element,
                const std::string& text) {
  nlohmann::json wrong{{"name", name}, {"text", text}};
  if (element >= 0) wrong["element"] = element;
  if (element > 0) wrong["right"] = element - 1;
  keep(run, rank, wrong);
}

void keep_failure(const RankRun& run) {
  keep(run, std::max(run.failed_rank(), 0), {{"name", ""}, {"text", run.failure()}});
}

}  // namespace fsdp
