#include <gtest/gtest.h>
#include <state/safetensors.h>

#include <nlohmann/json.hpp>

#include <common/expect_text.h>
#include <common/in_a_process.h>
#include <common/temporary_folder.h>

namespace fsdp {
namespace {

// Returns the bytes of a file in the format safetensors: the length of the header (`length`, if it
// is given), the header, and `data` bytes.
std::string file_text(const std::string& header, size_t data,
                      std::optional<uint64_t> length = std::nullopt) {
  const uint64_t written = length.value_or(header.size());
  std::string text(reinterpret_cast<const char*>(&written), 8);
  return text + header + std::string(data, 'x');
}

std::string refusal(const std::string& text) {
  const TemporaryFolder folder;
  const std::string path = folder.write("file", text);
  try {
    const SafetensorsReader reader(path);
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    EXPECT_TRUE(what.starts_with(path + ": ")) << what;
    return what.substr(std::min(what.size(), path.size() + 2));
  }
  return "accepted";
}

std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"("a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets +
         "}";
}

TEST(Safetensors, a_written_safetensors_file_has_the_bytes_that_the_format_requires) {
  in_a_process([] {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/file";
    SafetensorsWriter writer(path, {{"b", at::kFloat, {2}}, {"a", at::kLong, {}}}, {{"k", "v"}});
    writer.write(at::ones({2}));
    writer.write(at::full({}, 2, at::kLong));
    writer.close();
    std::string header =
        R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
        R"("a":{"dtype":"I64","shape":[],"data_offsets":[8,16]}})";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::string expected = file_text(header, 0);
    for (int i = 0; i < 2; ++i)
      expected += std::string("\0\0\x80\x3f", 4);
    expected += std::string("\2\0\0\0\0\0\0\0", 8);
    EXPECT_EQ(read_text(path, 1000), expected);
    EXPECT_EQ(writer.size(), static_cast<int64_t>(expected.size()));
    EXPECT_EQ(writer.sha256(), FileReader(path).sha256());
    const SafetensorsReader reader(path);
    const auto& b = reader.entries().at("b");
    EXPECT_THROW(reader.read(b, 1, at::zeros({2})), std::out_of_range);
  });
}

TEST(Safetensors, a_writer_of_safetensors_refuses_missing_surplus_and_repeated_data) {
  in_a_process([] {
    const TemporaryFolder folder;
    const SafetensorsEntry two{"a", at::kFloat, {2}};
    SafetensorsWriter writer(folder.path() + "/file", {two});
    writer.write(at::ones({1}));
    EXPECT_CONTAINS(error_of<std::logic_error>([&] { writer.close(); }), "4 bytes are missing");
    writer.write(at::ones({2}));
    EXPECT_CONTAINS(error_of<std::logic_error>([&] { writer.close(); }), "4 bytes too many");
    EXPECT_THROW(SafetensorsWriter(folder.path() + "/other", {two, two}), std::invalid_argument);
    EXPECT_THROW(SafetensorsWriter(folder.path() + "/no/file", {two}), std::runtime_error);
  });
}

TEST(Safetensors, a_range_of_a_safetensors_tensor_can_be_read_from_any_element) {
  in_a_process([] {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/file";
    const at::Tensor whole = at::arange(12, at::kFloat).view({3, 4});
    SafetensorsWriter writer(path, {{"first", at::kHalf, {2}}, {"whole", at::kFloat, {3, 4}}});
    writer.write(at::ones({2}, at::kHalf));
    for (const at::Tensor& row : whole.unbind())
      writer.write(row);
    writer.close();
    const SafetensorsReader reader(path);
    const auto& entry = reader.entries().at("whole");
    for (int64_t begin = 0; begin < 12; ++begin) {
      const at::Tensor part = at::zeros({std::min<int64_t>(5, 12 - begin)});
      reader.read(entry, begin, part);
      EXPECT_TRUE(part.equal(whole.flatten().narrow(0, begin, part.numel()))) << begin;
    }
    EXPECT_THROW(reader.read(entry, 8, at::zeros({5})), std::out_of_range);
    EXPECT_THROW(reader.read(reader.entries().at("first"), 0, at::zeros({1})), std::out_of_range);
  });
}

TEST(Safetensors, a_safetensors_header_that_is_no_json_object_or_does_not_fit_the_file_is_refused) {
  EXPECT_EQ(refusal(""), "has no header");
  EXPECT_EQ(refusal("1234567"), "has no header");
  for (const uint64_t length : {uint64_t{3}, uint64_t{1} << 40, ~uint64_t{0}, uint64_t{1} << 63}) {
    EXPECT_EQ(refusal(file_text("{}", 0, length)),
              "has a header of " + std::to_string(length) +
                  " bytes, after which 2 bytes are left; it is damaged, or not a safetensors file");
  }
  EXPECT_EQ(refusal(file_text("{}", 0)), "accepted");
  for (const std::string header : {"", "[]", "{", "\xff\xfe", "null", "{} {}"})
    EXPECT_EQ(refusal(file_text(header, 0)), "has a header that is no JSON object") << header;
  EXPECT_EQ(refusal(file_text(std::string(1 << 20, '['), 0)),
            "has a header that is JSON that is nested too deep");
}

// The array is nested too deep to be quoted in the text of the error.
TEST(Safetensors, a_tensor_shape_that_is_a_deeply_nested_array_is_refused) {
  const std::string deep = std::string(1 << 20, '[') + std::string(1 << 20, ']');
  EXPECT_EQ(refusal(file_text("{" + tensor("F32", deep, "[0,8]") + "}", 8)),
            "has a header that is JSON that is nested too deep");
}

TEST(Safetensors, an_error_shows_a_tensor_name_with_control_characters_in_one_line) {
  EXPECT_EQ(refusal(file_text(R"({"a\n\u001b[2J":7})", 0)),
            "tensor a??[2J: has an entry that is not as the format says");
  EXPECT_LT(refusal(file_text("{\"" + std::string(1 << 20, 'a') + "\":7}", 0)).size(), 600U);
}

TEST(Safetensors, an_entry_of_safetensors_that_does_not_fit_the_bytes_of_the_file_is_refused) {
  const auto refused = [](const std::string& entry, size_t data) {
    return refusal(file_text("{" + entry + "}", data));
  };
  EXPECT_EQ(refused(tensor("F32", "[2]", "[0,8]"), 8), "accepted");
  const std::string outside = "tensor a: lies outside the file";
  EXPECT_EQ(refused(tensor("F32", "[2]", "[0,8]"), 7), outside);
  EXPECT_EQ(refused(tensor("F32", "[2]", "[8,0]"), 8), outside);
  EXPECT_EQ(refused(tensor("F32", "[2]", "[0]"), 8), outside);
  const std::string shape = "tensor a: has a shape that is not as large as its bytes";
  EXPECT_EQ(refused(tensor("F32", "[3]", "[0,8]"), 8), shape);
  EXPECT_EQ(refused(tensor("F16", "[2]", "[0,8]"), 8), shape);
  EXPECT_EQ(refused(tensor("F32", "[4294967296,4294967296]", "[0,0]"), 0), shape);
  EXPECT_EQ(refused(tensor("F32", "[4611686018427387904]", "[0,0]"), 0), shape);
  EXPECT_EQ(refused(tensor("F31", "[2]", "[0,8]"), 8), "tensor a: has a dtype that is not known");
  for (const std::string number : {"-1", "1.5", "\"2\"", "18446744073709551615", "1e30"}) {
    EXPECT_EQ(refused(tensor("F32", "[" + number + "]", "[0,8]"), 8),
              "tensor a: has " + nlohmann::json::parse(number).dump() +
                  " where a number of steps, bytes or elements goes");
  }
  const std::string form = "tensor a: has an entry that is not as the format says";
  EXPECT_EQ(refused(R"("a":{"dtype":"F32"})", 0), form);
  EXPECT_EQ(refused(R"("a":7)", 0), form);
  EXPECT_EQ(refused(R"("a":{"dtype":1,"shape":[],"data_offsets":[0,4]})", 4), form);
}

TEST(Safetensors, tensors_in_a_safetensors_file_must_fill_it_without_gaps_and_overlaps) {
  const std::string two = R"("b":{"dtype":"U8","shape":[2],"data_offsets":)";
  const std::string first = tensor("U8", "[2]", "[0,2]") + ',';
  const std::string order = "the tensors do not fill the file one after the other";
  EXPECT_EQ(refusal(file_text("{" + first + two + "[2,4]}}", 4)), "accepted");
  // The two tensors overlap in byte 1.
  EXPECT_EQ(refusal(file_text("{" + first + two + "[1,3]}}", 3)), order);
  // Byte 2, between the two tensors, belongs to no tensor.
  EXPECT_EQ(refusal(file_text("{" + first + two + "[3,5]}}", 5)), order);
  // Byte 4, the last byte of the file, belongs to no tensor.
  EXPECT_EQ(refusal(file_text("{" + first + two + "[2,4]}}", 5)), order);
}

}  // namespace
}  // namespace fsdp
