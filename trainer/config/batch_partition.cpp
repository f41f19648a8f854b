#include <base/torch.h>
#include <config/batch_partition.h>

#include <bit>

namespace fsdp {

int BatchPartition::partial_sums(int count) const {
  if (count == microbatches()) return 1;
  // A binary tree to which `leaves` leaves have been added so far, from left to right, consists of
  // one complete subtree for each bit that is set in `leaves`.
  const auto subtrees = [](int leaves) { return std::popcount(static_cast<unsigned>(leaves)); };
  int sums = 0;
  for (const int group :
       {reduce_last ? accumulation_steps : shards, reduce_last ? shards : replicas}) {
    sums += subtrees(count % group);
    count /= group;
  }
  return sums + subtrees(count);
}

bool BatchPartition::is_one_tree() const {
  // Number of microbatches in each term of the sums that the current `level` of the tree adds.
  int inner = 1;
  for (const int level :
       {reduce_last ? accumulation_steps : shards, reduce_last ? shards : replicas,
        reduce_last ? replicas : accumulation_steps}) {
    if (level > 1 && !std::has_single_bit(static_cast<unsigned>(inner))) return false;
    inner *= level;
  }
  return true;
}

bool TreeSum::starts_new_partial_sum() const {
  return count_ > 0 && partition_.partial_sums(count_ + 1) > partition_.partial_sums(count_);
}

std::vector<at::Tensor> TreeSum::fold(std::vector<at::Tensor> running) {
  const at::NoGradGuard no_grad;
  ++count_;
  const auto others = static_cast<size_t>(partition_.partial_sums(count_) - 1);
  for (; aside_.size() > others; aside_.pop_back())
    for (size_t i = 0; i < running.size(); ++i) {
      const at::Tensor& aside = aside_.back()[i];
      if (!running[i].defined()) {
        running[i] = aside;
      } else if (aside.defined()) {
        running[i].add_(aside);
      }
    }
  return running;
}

}  // namespace fsdp
