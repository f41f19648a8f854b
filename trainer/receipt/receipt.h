#pragma once

#include <diff/run_hashes.h>
#include <receipt/sampling.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace fsdp {

// The version of LibTorch and the processor on which the bits of a run depend.
struct Kernels {
  std::string libtorch;   // version of LibTorch
  std::string cpu;        // the instruction set that LibTorch's kernels use, such as AVX512
  std::string processor;  // name of the processor
  bool operator==(const Kernels&) const = default;
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Kernels, libtorch, cpu, processor)

Kernels kernels_here();

// An event of the run, and the processes that computed it or hold a part of its tensor. The
// processes are not hashed into the Merkle tree, so the root does not depend on them.
struct Leaf {
  EventHash event;
  // The ranks of the processes that computed the event or hold a part of its tensor, ascending.
  std::vector<int> ranks;
};

// A receipt has hashes of tensors that the steps of a run computed. With it, an auditor can compute
// parts of the run again and compare the hashes.
//
// The file of a receipt has a line of JSON for each of:
// - the head: the members of this class from `settings` to `sampling`, and "receipt": the version
//   of the format;
// - each leaf, in the order of EventKey;
// - the end: "leaves", the number of leaves; "root", the root of the Merkle tree over the leaves;
//   "seal", the SHA-256 of all earlier lines and of the root; "signature", the signature of the
//   seal, if the run signed its receipt.
// If two runs have equal events, their receipts have equal roots, however each run divided its work
// among ranks.
struct Receipt {
  nlohmann::json settings;         // the settings that decide which numbers the run computes
  std::string options;             // the run's options, see ReportsConfig::audited_options
  int world{};                     // number of ranks of the run (--world)
  std::vector<std::string> hosts;  // for each process of the run, the name of its host
  Kernels kernels;
  Sampling sampling;
  std::map<EventKey, Leaf> leaves;

  // read_receipt() fills `seal` and `signature`; write_receipt() ignores them.
  std::string seal{};
  std::string signature{};  // signature of the seal, in hexadecimal digits; empty: not signed

  std::string root() const;
};

// Writes `receipt` to the file `path`: the whole file or, after a failure, nothing. Returns the
// root of the Merkle tree.
// - `private_key`: the key that signs the receipt, as private_key_in() returns it; empty: the
//   receipt is not signed.
// Throws std::runtime_error, which names the file, if the file can't be written.
std::string write_receipt(const std::string& path, const Receipt& receipt,
                          const std::string& private_key = "");

// Reads and checks the receipt in the file `path`. Throws std::runtime_error, which names the file
// and the line:
// - if the file can't be read, is cut off, or is not a receipt of this version;
// - if a line is not one that write_receipt() writes: for example, a line that is doubled or out of
//   order, a leaf that Sampling does not select, or a leaf of a step that the run does not have;
// - if the root, the seal or the number of leaves in the last line does not fit the other lines.
Receipt read_receipt(const std::string& path);

}  // namespace fsdp
