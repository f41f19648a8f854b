#include <state/checkpoint.h>
#include <state/checkpoint_folder.h>
#include <state/files.h>
#include <sys/stat.h>
#include <task5_sharded_optimizer/each_element.h>
#include <testing/multi_rank.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>

#include <common/expect_text.h>
#include <common/temporary_folder.h>
#include "saved_state.h"

namespace fsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int64_t kMost = 1 << 20;  // largest number of bytes that a test reads from a file

void write(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// Makes copies of the checkpoint folder `original`, and damages each copy in another way.
struct DamagedCopies {
  void add(const std::function<void(const std::string& copy)>& damage) {
    copies.push_back(original + "-damaged-" + std::to_string(copies.size()));
    fs::copy(original, copies.back());
    damage(copies.back());
  }
  std::string original;
  std::vector<std::string> copies{};
};

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

// Adds copies with a flipped bit in each region of each file, with a file cut off in each region,
// with a surplus byte, and with a missing file.
void damage_bytes(DamagedCopies& copies, const std::string& folder) {
  for (const std::string& name : files_in(folder)) {
    const std::string text = read_text(folder + '/' + name, kMost);
    for (const size_t place : {size_t{0}, size_t{3}, size_t{7}, size_t{8}, size_t{30},
                               text.size() / 2, text.size() - 2, text.size() - 1}) {
      copies.add([&](const std::string& copy) {
        std::string flipped = text;
        flipped[place] = static_cast<char>(flipped[place] ^ 1 << place % 8);
        write(copy + '/' + name, flipped);
      });
    }
    for (const size_t size : {size_t{0}, size_t{7}, size_t{8}, size_t{40}, text.size() - 1})
      copies.add([&](const std::string& copy) { write(copy + '/' + name, text.substr(0, size)); });
    copies.add([&](const std::string& copy) { write(copy + '/' + name, text + '\n'); });
    copies.add([&](const std::string& copy) { fs::remove(copy + '/' + name); });
  }
}

// Loads each folder on all ranks and returns the errors. Fails unless all ranks throw the same
// error and the state is unchanged.
std::vector<std::string> refusals(int world_size, const std::vector<std::string>& folders) {
  const RankRun run = run_ranks(world_size, [&](TestRank& rank) {
    const ModelState state = cut_state(rank.rank(), rank.world_size(), true);
    std::vector<std::string> texts;
    for (const std::string& folder : folders) {
      SCOPED_TRACE(folder);
      texts.push_back(error_of<std::runtime_error>(
          [&] { load_checkpoint(folder, state, each_element, *rank.communicator()); }));
    }
    rank.observe("texts", texts);
    EXPECT_TRUE(equal(state, cut_state(rank.rank(), rank.world_size(), true)));
  });
  expect_same_on_all_ranks(run, "texts");
  return run.at(0, "texts");
}

// Saves a checkpoint from two ranks, and returns its folder.
std::string saved_in(const TemporaryFolder& folder, CheckpointFormat format) {
  run_ranks(2, [&](TestRank& rank) {
    save_checkpoint(folder.path(), format, 3, {}, cut_state(rank.rank(), 2), *rank.communicator());
  });
  return step_folder(folder.path(), 3);
}

MULTI_RANK_SUITE(DamagedCheckpoint);

MULTI_RANK_TEST(DamagedCheckpoint, every_rank_refuses_damaged_files_before_any_value_changes) {
  for (const auto format : {CheckpointFormat::sharded, CheckpointFormat::full}) {
    const TemporaryFolder folder;
    const std::string original = saved_in(folder, format);
    DamagedCopies damaged{original};
    damage_bytes(damaged, original);
    const auto texts = refusals(world_size(), damaged.copies);
    ASSERT_EQ(texts.size(), 60U);
    for (size_t i = 0; i < texts.size(); ++i) {
      // The error begins with the path of the damaged file.
      const std::string start = damaged.copies[i] + '/';
      EXPECT_TRUE(texts[i].starts_with(start)) << texts[i] << "\n in " << start;
      EXPECT_EQ(texts[i].find('\n'), std::string::npos) << texts[i];
    }
  }
}

// The file is reported as damaged, not as a file with an unknown tensor name, because its hash is
// compared before its tensor names are used.
MULTI_RANK_TEST(DamagedCheckpoint, a_file_with_a_changed_tensor_name_is_reported_as_damaged) {
  const TemporaryFolder folder;
  const std::string original = saved_in(folder, CheckpointFormat::sharded);
  DamagedCopies damaged{original};
  damaged.add([](const std::string& copy) {
    const std::string path = copy + "/rank-0001-of-0002.safetensors";
    std::string text = read_text(path, kMost);
    text[text.find("a.weight")] = 'X';
    write(path, text);
  });
  EXPECT_EQ(refusals(world_size(), damaged.copies)[0],
            damaged.copies[0] +
                "/rank-0001-of-0002.safetensors: is damaged; its SHA-256 is not "
                "the one in SHA256SUMS");
}

// Changes checkpoint.json in the checkpoint `folder`, and writes hashes that match the changed
// files.
void describe_anew(const std::string& folder, const std::function<void(Json&)>& change) {
  Description description = read_description(folder);
  change(description.json);
  for (SavedFile& file : description.files) {
    if (file.name.find('/') != std::string::npos) continue;
    const FileReader reader(folder + '/' + file.name);
    file.bytes = reader.size();
    file.sha256 = reader.sha256();
  }
  write_description(folder, description.json, description.files);
}

// Changes the header of the safetensors file that rank 0 wrote, and writes hashes that match it.
void change_header(const std::string& folder, const std::function<void(Json&)>& change) {
  const std::string path = folder + "/rank-0000-of-0002.safetensors";
  const std::string text = read_text(path, kMost);
  uint64_t length = 0;
  std::copy_n(text.data(), sizeof length, reinterpret_cast<char*>(&length));
  Json header = Json::parse(text.substr(8, length));
  const std::string data = text.substr(8 + length);
  change(header);
  const std::string changed = header.dump();
  length = changed.size();
  write(path, std::string(reinterpret_cast<const char*>(&length), 8) + changed + data);
  describe_anew(folder, [](Json&) {});
}

void rename(Json& header, const std::string& from, const std::string& to) {
  Json renamed;
  for (const auto& [name, entry] : header.items())
    renamed[name == from ? to : name] = entry;
  header = renamed;
}

MULTI_RANK_TEST(DamagedCheckpoint,
                a_checkpoint_of_another_model_or_version_is_refused_with_the_difference) {
  const TemporaryFolder folder;
  const std::string original = saved_in(folder, CheckpointFormat::sharded);
  DamagedCopies copies{original};
  std::vector<std::string> expected;
  const auto described = [&](const std::string& text, const std::function<void(Json&)>& change) {
    copies.add([&](const std::string& copy) { describe_anew(copy, change); });
    expected.push_back("/checkpoint.json: " + text);
  };
  const auto with_header = [&](const std::string& text, const std::function<void(Json&)>& change) {
    copies.add([&](const std::string& copy) { change_header(copy, change); });
    expected.push_back(text);
  };
  described("has version 2 of the format; this program knows version 1",
            [](Json& json) { json["version"] = 2; });
  described("is no checkpoint", [](Json& json) { json["format"] = "zip"; });
  described("the parameter a.bias has the shape [1,5], and in the model [5]", [](Json& json) {
    json["parameters"][1]["shape"] = {1, 5};
  });
  described("has the parameter c.bias, and the model has a.bias in this place",
            [](Json& json) { json["parameters"][1]["name"] = "c.bias"; });
  described("lacks the model's parameter b.none", [](Json& json) { json["parameters"].erase(3); });
  described("has the parameter more, and the model has none in this place", [](Json& json) {
    json["parameters"].push_back({{"name", "more"}, {"shape", {1}}});
  });
  described("has the parameter a.weight twice",
            [](Json& json) { json["parameters"][1] = json["parameters"][0]; });
  described("the parameter a.bias is too large", [](Json& json) {
    json["parameters"][1]["shape"] = {int64_t{1} << 62, 4};
  });
  described("has -5 where a number of steps, bytes or elements goes",
            [](Json& json) { json["parameters"][1]["shape"] = {-5}; });
  copies.add([](const std::string& copy) {
    Description description = read_description(copy);
    description.files[0].name = "../" + description.files[0].name;
    write_description(copy, description.json, description.files);
  });
  expected.push_back("/checkpoint.json: names a file of another folder");
  const std::string file = "/rank-0000-of-0002.safetensors: tensor ";
  with_header(file + "a.bias:0-2: is not F32",
              [](Json& header) { header["a.bias:0-2"]["dtype"] = "I32"; });
  with_header(file + "a.bias/exp_avg:0-2: has the shape [1,2], not [2]", [](Json& header) {
    header["a.bias/exp_avg:0-2"]["shape"] = {1, 2};
  });
  with_header(file + "c.bias:0-2: is of no parameter of the model",
              [](Json& header) { rename(header, "a.bias:0-2", "c.bias:0-2"); });
  with_header(file + "a.bias:4-6: has elements that the parameter does not have",
              [](Json& header) { rename(header, "a.bias:0-2", "a.bias:4-6"); });
  with_header(": the files do not have every element of a.bias once",
              [](Json& header) { rename(header, "a.bias:0-2", "a.bias:1-3"); });
  with_header(": the files do not have every element of a.bias/exp_avg once",
              [](Json& header) { rename(header, "a.bias/exp_avg:0-2", "a.bias/exp_avg:2-4"); });
  const auto texts = refusals(world_size(), copies.copies);
  for (size_t i = 0; i < texts.size(); ++i)
    EXPECT_EQ(texts[i], copies.copies[i] + expected[i]);
}

MULTI_RANK_TEST(DamagedCheckpoint,
                a_checkpoint_without_the_moments_that_the_optimizer_needs_is_refused) {
  const TemporaryFolder folder;
  run_ranks(1, [&](TestRank& rank) {
    ModelState state = whole_state();
    for (StateRange& range : state.ranges)
      range = {range.parameter, range.begin, range.end, range.value, {}, {}, {}};
    save_checkpoint(folder.path(), CheckpointFormat::full, 3, {}, state, *rank.communicator());
  });
  const std::string saved = step_folder(folder.path(), 3);
  EXPECT_EQ(refusals(world_size(), {saved}).at(0), saved + ": has no tensor a.weight/exp_avg");
}

// No process writes into the FIFO, so a read from it would never end. The hash of the deeply nested
// checkpoint.json matches, so only its nesting is wrong.
MULTI_RANK_TEST(DamagedCheckpoint, a_checkpoint_with_a_fifo_or_deeply_nested_json_is_refused) {
  const TemporaryFolder folder;
  DamagedCopies copies{saved_in(folder, CheckpointFormat::sharded)};
  for (const std::string name : {"/checkpoint.json", "/rank-0001-of-0002.safetensors"}) {
    copies.add([&](const std::string& copy) {
      fs::remove(copy + name);
      mkfifo((copy + name).c_str(), 0600);
    });
  }
  copies.add([](const std::string& copy) {
    const std::string path = copy + "/checkpoint.json";
    write(path, R"({"version":)" + std::string(1 << 18, '[') + std::string(1 << 18, ']') + '}');
    write(copy + "/SHA256SUMS", FileReader(path).sha256() + "  checkpoint.json\n");
  });
  const auto texts = refusals(world_size(), copies.copies);
  EXPECT_EQ(texts[0], copies.copies[0] + "/checkpoint.json: is no plain file");
  EXPECT_EQ(texts[1], copies.copies[1] + "/rank-0001-of-0002.safetensors: is no plain file");
  EXPECT_EQ(texts[2], copies.copies[2] + "/checkpoint.json: is JSON that is nested too deep");
}

}  // namespace
}  // namespace fsdp
