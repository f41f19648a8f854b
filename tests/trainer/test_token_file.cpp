#include <base/whole_file.h>
#include <data/dataset.h>
#include <data/token_file_writer.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include <common/expect_text.h>
#include <common/in_a_process.h>
#include <common/temporary_folder.h>

#include "parsed.h"

namespace fsdp {
namespace {

template <class Number>
std::string bytes_of(const std::vector<Number>& numbers) {
  return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(Number)};
}

std::vector<uint16_t> counting(uint16_t first, size_t count) {
  std::vector<uint16_t> ids(count);
  std::iota(ids.begin(), ids.end(), first);
  return ids;
}

std::string header(int32_t magic, int32_t version, int32_t count) {
  std::vector<int32_t> numbers(256);
  numbers[0] = magic, numbers[1] = version, numbers[2] = count;
  return bytes_of(numbers);
}

// LibTorch's 16-bit integers have a sign. If the ids were read as such integers, ids above 32767
// would be negative.
TEST(TokenFile, token_files_of_nanogpt_and_of_llm_c_give_the_same_rows) {
  const TemporaryFolder folder;
  const std::string ids = bytes_of(counting(40'000, 100));
  const auto plain = folder.write("plain.bin", ids);
  const auto headed = folder.write("headed.bin", header(20240520, 1, 100) + ids);
  in_a_process([&] {
    const auto one = make_token_dataset({plain}, 65'536, 7);
    const auto other = make_token_dataset({headed}, 65'536, 7);
    for (int64_t step = 0; step < 3; ++step) {
      const Batch batch = one->batch(step, 4, 9), same = other->batch(step, 4, 9);
      EXPECT_TRUE(batch.inputs.equal(same.inputs));
      EXPECT_TRUE((batch.inputs + 1).equal(batch.targets));
      EXPECT_GE(batch.inputs.min().item<int64_t>(), 40'000);
      // The ids from 40,090 on are the last tenth of the file, which is held out.
      EXPECT_LT(batch.targets.max().item<int64_t>(), 40'090);
    }
    EXPECT_EQ(one->held_out(9, 9).inputs[0][0].item<int64_t>(), 40'090);
  });
}

TEST(TokenFile, token_ids_of_32_bits_are_read_as_unsigned_numbers) {
  const TemporaryFolder folder;
  std::vector<uint32_t> ids(100, 150'000);
  ids.back() = 4'000'000'000;
  const auto path = folder.write("wide.bin", header(20240801, 7, 100) + bytes_of(ids));
  EXPECT_EQ(TokenFile(path).size, 100);
  const std::string reason =
      ": token 99 is 4000000000, and the model has 150001 ids; make the ids with the tokenizer of "
      "the model or, for a new model, give --vocabulary";
  EXPECT_EQ(refused({"--tokens", path, "--seq", "8", "--vocabulary", "150001"}),
            "--tokens " + path + reason);
  in_a_process([&] {
    const auto data = make_token_dataset({path}, 150'001, 7);
    EXPECT_TRUE(data->batch(0, 4, 9).inputs.eq(150'000).all().item<bool>());
    EXPECT_EQ(error_of<std::invalid_argument>([&] { data->held_out(1, 9); }), path + reason);
  });
}

TEST(TokenFile, a_written_token_file_has_16_bits_per_id_if_all_ids_fit_else_32) {
  const TemporaryFolder folder;
  for (const int64_t vocabulary : {65'536, 65'537}) {
    const auto last = static_cast<int32_t>(vocabulary) - 1;
    TokenFileWriter writer(vocabulary);
    for (int i = 0; i < 50; ++i)
      writer.add(std::vector<int32_t>{0, last});
    const std::string path = folder.path() + "/written.bin";
    writer.write(path);
    const int64_t bytes = vocabulary == 65'536 ? 2 : 4;
    EXPECT_EQ(writer.bits(), 8 * bytes);
    EXPECT_EQ(content_of(path).size(), 1024 + 100 * bytes);
    const TokenFile file(path);
    EXPECT_EQ(file.bytes_per_id, bytes);
    EXPECT_EQ(file.size, 100);
    in_a_process([&] {
      const Batch batch = make_token_dataset({path}, vocabulary, 7)->batch(0, 1, 2);
      const auto tokens = at::cat({batch.inputs[0], batch.targets[0]});
      EXPECT_EQ(tokens.min().item<int64_t>(), 0);
      EXPECT_EQ(tokens.max().item<int64_t>(), last);
    });
  }
}

TEST(TokenFile, a_token_file_that_cant_be_written_is_an_error_that_names_it) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/none/t.bin";
  EXPECT_EQ(error_of<std::runtime_error>([&] { TokenFileWriter(10).write(path); }),
            path + ": can't be written: No such file or directory");
}

TEST(TokenFile, the_second_of_two_token_files_is_held_out) {
  const TemporaryFolder folder;
  const auto train = folder.write("train.bin", bytes_of(counting(0, 10)));
  const auto val = folder.write("val.bin", header(20240520, 1, 20) + bytes_of(counting(100, 20)));
  in_a_process([&] {
    const auto data = make_token_dataset({train, val}, 200, 1);
    EXPECT_EQ(data->batch(0, 1, 9).targets[0][8].item<int64_t>(),
              9);  // all of the first file is trained on, because the second one is held out
    const Batch held_out = data->held_out(5, 9);
    ASSERT_EQ(held_out.inputs.size(0), 2);
    EXPECT_EQ(held_out.inputs[1][0].item<int64_t>(), 110);
    const std::string refusal = error_of<std::invalid_argument>([&] { data->batch(0, 1, 10); });
    EXPECT_EQ(refusal, "a row takes 11 tokens, there are only 10 to train on");
    const auto small = make_token_dataset({train, val}, 105, 1);
    EXPECT_EQ(error_of<std::invalid_argument>([&] { small->held_out(1, 9); }),
              val +
                  ": token 5 is 105, and the model has 105 ids; make the ids with the tokenizer of "
                  "the model or, for a new model, give --vocabulary");
  });
}

TEST(TokenFile, an_id_that_the_model_does_not_have_is_refused_before_training) {
  const TemporaryFolder folder;
  const std::string reason =
      " ids; make the ids with the tokenizer of the model or, for a new "
      "model, give --vocabulary";
  const auto train = folder.write("train.bin", bytes_of(counting(0, 40'000)));
  const auto val = folder.write("val.bin", header(20240520, 1, 40) + bytes_of(counting(100, 40)));
  const auto error = [&](const Arguments& files, const std::string& vocabulary) {
    Arguments arguments{"--seq", "8", "--vocabulary", vocabulary, "--tokens"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    return refused(arguments);
  };
  EXPECT_EQ(error({val}, "140"), "accepted");
  EXPECT_EQ(error({val}, "139"),
            "--tokens " + val + ": token 39 is 139, and the model has 139" + reason);
  EXPECT_EQ(error({train, val}, "30000"),
            "--tokens " + train + ": token 30000 is 30000, and the model has 30000" + reason);
  EXPECT_EQ(error({val, train}, "140"),
            "--tokens " + train + ": token 140 is 140, and the model has 140" + reason);
  EXPECT_NO_THROW(check_token_ids(train, 100, /*most=*/100));
  EXPECT_THROW(check_token_ids(train, 100, /*most=*/101), std::invalid_argument);
}

TEST(TokenFile, an_empty_or_malformed_token_file_is_refused_before_training) {
  const TemporaryFolder folder;
  const auto why = [&](const std::string& content) {
    const auto path = folder.write("t.bin", content);
    const std::string text = refused({"--tokens", path});
    const std::string start = "--tokens " + path + ": ";
    EXPECT_TRUE(text.starts_with(start)) << text;
    return text.substr(std::min(text.size(), start.size()));
  };
  EXPECT_EQ(why(""), "can't be read, or is empty");
  EXPECT_EQ(why(std::string("a\0c", 3)),
            "has an odd number of bytes, so its tokens are not of 16 bits");
  EXPECT_EQ(why(header(20240801, 1, 1) + "abcd"),
            "has a header of version 1 for tokens of 32 bits, and only version 7 can be read");
  EXPECT_EQ(why(header(20240801, 7, 1) + "abcdef"),
            "has a header for tokens of 32 bits, and a number of bytes that 4 does not divide");
  EXPECT_EQ(why(header(20240801, 7, 3) + "abcdefgh"),
            "has a header for 3 tokens, but the file has 2");
  EXPECT_EQ(why(header(20240801, 7, -253).substr(0, 12)),
            "has a header for -253 tokens, but the file has -253");
  EXPECT_EQ(why(header(20240520, 1, 3) + "abcd"), "has a header for 3 tokens, but the file has 2");
  EXPECT_EQ(why(header(20240520, 1, -506).substr(0, 12)),
            "has a header for -506 tokens, but the file has -506");
  EXPECT_EQ(refused({"--tokens", folder.path()}),
            "--tokens " + folder.path() + ": is not a plain file");
  EXPECT_EQ(refused({"--tokens", folder.path() + "/none"}),
            "--tokens " + folder.path() + "/none: no such file");
  EXPECT_EQ(refused({"--data", "tokens"}), "--data tokens: needs --tokens FILE");
  const auto good = folder.write("good.bin", bytes_of(counting(0, 10)));
  EXPECT_EQ(refused({"--tokens", good, "--data", "text"}), "--tokens: needs --data tokens");
  EXPECT_EQ(parsed({"--tokens", good, "--seq", "8"}).data.kind, DataKind::tokens);
}

TEST(TokenFile, text_or_weights_in_place_of_token_ids_are_refused_with_advice) {
  const TemporaryFolder folder;
  const std::string reason =
      ": is text, not token ids; train on its bytes with --text, or make ids of it with ./fsdp "
      "tokenize";
  const auto book = folder.write("book", "The ranks add up their gradients.\n");
  const auto named = folder.write("named.txt", "\xce\xbb\xce\xbb\xce\xbb\xce\xbb");
  for (const std::string& path : {book, named})
    EXPECT_EQ(refused({"--tokens", path, "--seq", "2"}), "--tokens " + path + reason);
  const auto weights = folder.write("model.safetensors", bytes_of(counting(0, 100)));
  EXPECT_CONTAINS(refused({"--tokens", weights}),
                  "--tokens " + weights + ": is a .safetensors file, not plain token ids, ");
  const auto ids = folder.write("ids.bin", bytes_of(counting(40'000, 100)));
  EXPECT_EQ(refused({"--tokens", ids, "--seq", "8", "--vocabulary", "65536"}), "accepted");
  const auto numbers = folder.write("ids.txt", bytes_of(counting(0, 100)));
  EXPECT_EQ(refused({"--tokens", numbers, "--seq", "8"}), "accepted");
}

TEST(TokenFile, a_token_file_that_is_shorter_than_a_row_is_refused_before_training) {
  const TemporaryFolder folder;
  const auto ten = folder.write("ten.bin", bytes_of(counting(0, 10)));
  const auto hundred = folder.write("hundred.bin", bytes_of(counting(0, 100)));
  EXPECT_EQ(refused({"--tokens", ten, "--seq", "9"}),
            "--tokens " + ten + ": a row takes 10 tokens (--seq 9), and only 9 are trained on");
  EXPECT_EQ(refused({"--tokens", ten, "--seq", "8"}), "accepted");
  EXPECT_EQ(refused({"--tokens", ten, "--seq", "1", "--eval-every", "1"}),
            "--tokens " + ten + ": a row takes 2 tokens (--seq 1), and only 1 are held out");
  EXPECT_EQ(refused({"--tokens", hundred, ten, "--seq", "9", "--eval-every", "1"}), "accepted");
  EXPECT_EQ(refused({"--tokens", hundred, ten, "--seq", "10", "--eval-every", "1"}),
            "--tokens " + ten + ": a row takes 11 tokens (--seq 10), and only 10 are held out");
}

}  // namespace
}  // namespace fsdp
