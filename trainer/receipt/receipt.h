#pragma once

#include <diff/run_hashes.h>
#include <receipt/sampling.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// The kernels and the processor on which the bits of a run depend.
struct Kernels {
  std::string libtorch;   // its version
  std::string cpu;        // the instructions that LibTorch's kernels use, such as AVX512
  std::string processor;  // its name
  bool operator==(const Kernels&) const = default;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Kernels, libtorch, cpu, processor)

Kernels kernels_here();

// An event of the run, and the processes that computed it or hold a part of it. They are not in
// the tree, so the root does not depend on them.
struct Leaf {
  EventHash event;
  std::vector<int> ranks;  // ascending
};

// A receipt has hashes of tensors that the steps of a run made. Anybody can check the run with it.
//
// The file has a line of JSON for each of:
// - the head: the members of this class, and "receipt": the version of the format;
// - each leaf, in the order of EventKey;
// - the end: "leaves", their number; "root", that of the Merkle tree over the leaves; "seal", the
//   SHA-256 of all lines before this one and of the root; "signature", that of the seal, if the
//   run signed its receipt.
// The root is the same for every arrangement of the ranks, if the events are the same.
struct Receipt {
  nlohmann::json settings;         // those that decide which numbers the run computes
  std::string options;             // of the run, in the format of --config; see audited_options
  int world{};                     // --world
  std::vector<std::string> hosts;  // by process: the name of its host
  Kernels kernels;
  Sampling sampling;
  std::map<EventKey, Leaf> leaves;

  // read_receipt() fills these two.
  std::string seal{};
  std::string signature{};  // of the seal, in hexadecimal digits; empty: the receipt is not signed

  std::string root() const;
};

// Writes the file, whole or not at all. Returns the root.
// - `private_key`: the key that signs the receipt (private_key_in()); empty: nothing signs it.
// Throws std::runtime_error, which names the file.
std::string write_receipt(const std::string& path, const Receipt& receipt,
                          const std::string& private_key = "");

// Reads and checks the file.
// Throws std::runtime_error, which names the file and the line:
// - if it can't be read, is cut off, or is not a receipt of this version;
// - if a line is not what write_receipt() writes: lines that are doubled, missing or in another
//   order, a leaf that sampling does not select, or that lies outside of the run;
// - if the root or the seal differs from that of the lines.
Receipt read_receipt(const std::string& path);

}  // namespace fsdp
