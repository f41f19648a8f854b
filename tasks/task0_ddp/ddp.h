#pragma once

#include <comm/communicator.h>
#include <nn/module.h>
#include <optim/gradient_buckets.h>
#include <optim/shard_layout.h>

#include <memory>
#include <vector>

namespace fsdp {

// Distributed data parallelism (DDP): every rank has the whole model, computes its own rows, and
// the ranks average their gradients. (Li et al., "PyTorch Distributed", VLDB 2020, sections 3.2 and
// 4.)

// Problem 0.1. Averages gradients over the ranks of `comm` after a backward pass. All ranks call it
// with the same parameters.
// - For each parameter that requires a gradient, in the order of the vector: one all-reduce of
//   numel() elements of fp32, under the parameter's name.
// - A parameter without a .grad on this rank counts as zero. Its all-reduce is called too, because
//   another rank may have a gradient for it.
// - Afterwards the .grad of each of these parameters is the mean over ranks: the sum, divided once
//   by W. (1 / W is not exact for every W.)
// - A parameter that requires no gradient stays as it is, and no collective is called for it.
void all_reduce_gradients(const std::vector<NamedParameter>& parameters, Communicator& comm);

// Problem 0.2. Adds up gradients over the ranks in buckets. A bucket is one flat tensor that holds
// gradients one after another, without gaps. One all-reduce adds up a whole bucket. The course's
// function gradient_buckets() says which gradient lies where.
//
// "Pass" means backward pass.
// - In each pass, the caller first calls begin(). Then it calls place() and ready() for each
//   gradient that the pass computes. At the end it calls finish().
// - The caller destroys this object only between passes.
// - All ranks call begin() and finish() equally often. The gradients may become ready in another
//   order on each rank, and some of them on no rank or on some ranks only.
class BucketReducer {
 public:
  virtual ~BucketReducer() = default;
  BucketReducer(const BucketReducer&) = delete;  // it owns the buckets of a pass

  // Begins a pass: no gradient is ready. If finish() did not end the pass before, because backward
  // threw, first waits for the all-reduces that were issued in that pass.
  // - `buckets`: the caller's buckets in the order of their index. Their number and their sizes are
  //   those of gradient_buckets(). They may already hold sums of earlier passes: this object
  //   changes none of their values before the all-reduce. A bucket may be a part of a larger
  //   tensor.
  // - If `buckets` is empty, this object allocates each bucket when place() is first called for one
  //   of its gradients, or in finish(). It uses Communicator::empty(), so that the all-reduce needs
  //   no copy, and counts the bytes as MemoryClass::gradients. In such a bucket, a gradient that
  //   does not become ready counts as zero, even if its place was written.
  virtual void begin(std::vector<at::Tensor> buckets = {}) = 0;

  // Returns the place of gradient `index` in its bucket: a tensor of its shape that shares the
  // bucket's storage and is no view to autograd (view_of_storage() in memory/storage.h).
  virtual at::Tensor place(size_t index) = 0;

  // Says that gradient `index` has been written to its place. The name of a bucket's all-reduce is
  // "bucket.INDEX". In problem 0.2 only finish() issues this all-reduce. In problem 0.3 this
  // function issues it too:
  // - as soon as all gradients of this bucket and of all buckets before it are ready, and not
  //   earlier, so that every rank issues the buckets in the order of their index;
  // - without waiting for the all-reduce.
  // Throws std::logic_error, which names the index, if the gradient is ready already.
  virtual void ready(size_t index) = 0;

  // Ends the pass. Issues the all-reduces that were not issued yet, in the order of the buckets,
  // then waits for all. Returns the buckets, which now hold the sums over ranks; this object keeps
  // none of them.
  virtual std::vector<at::Tensor> finish() = 0;

 protected:
  BucketReducer() = default;
};

// Makes a reducer of gradients with these shapes. Issues no collective.
std::unique_ptr<BucketReducer> make_bucket_reducer(const std::vector<std::vector<int64_t>>& shapes,
                                                   BucketSizes sizes,
                                                   std::shared_ptr<Communicator> comm);

// Problem 0.3. Averages the gradients of one model while backward computes them.
class DataParallel {
 public:
  virtual ~DataParallel() = default;           // removes the hooks
  DataParallel(const DataParallel&) = delete;  // the hooks point to this object

  // Ends a backward pass. All ranks call it once after each of their backward passes, also a rank
  // whose pass reached no parameter or threw.
  // - Waits for the buckets. A parameter without a gradient on this rank counts as zero.
  // - Afterwards each parameter's .grad is its place in its bucket, and holds the mean over ranks:
  //   the sum, divided once by W.
  virtual void finish() = 0;

 protected:
  DataParallel() = default;
};

// Registers a hook on each distinct parameter of `model` that requires a gradient now. The
// gradients of other parameters are not averaged. Issues no collective.
//
// During a backward pass, when all uses of a parameter have been added up in its .grad (once for
// each pass, also if the parameter is tied), the hook moves the gradient into its bucket. The
// parameter then has no .grad, so the memory of its gradient is free. While backward computes the
// next gradients, the ranks already reduce the buckets whose all-reduce ready() has issued.
//
// - Before a pass, the parameters have no .grad (zero_grad() drops it).
// - A second backward pass before finish() throws std::logic_error, which names the parameter,
//   because the all-reduce of its first gradient may have been issued already. The gradients that
//   the first pass has moved stay in their buckets.
// - `model` must outlive the object, which is destroyed only between passes.
std::unique_ptr<DataParallel> make_data_parallel(Module& model, std::shared_ptr<Communicator> comm,
                                                 BucketSizes sizes = kDdpBuckets);

}  // namespace fsdp
