#include <quiz/explanations.h>
#include <quiz/row.h>
#include <quiz/scale.h>

namespace fsdp {

std::vector<Row> scale_rows() {
  const std::string links = " --inter {5us,10us,20us},{25GB/s,50GB/s}";
  const std::string options =
      "Of the options, --rows are the rows of a rank, --flops what it computes in a second, "
      "--gpus-per-host the ranks of a host, and --intra and --inter the latency and the bandwidth "
      "of the links within a host and between hosts.";
  const std::string alone = " --wrap block --param-dtype bf16 --gpus-per-host 1";
  return {
      {"What is the largest number of ranks on which the links are fast enough for backward? They "
       "are fast enough if the collectives of the units in backward take no longer than the "
       "computing of backward. (A rank waits a little even then, because not every collective "
       "overlaps with computing.) Forward reshards each block. Count also the root: its reduction, "
       "and the flops of the head. Every rank has a host of its own, and computes the rows of "
       "--rows, however many ranks there are. Find --world. " +
           options,
       "--model {gpt2-355m,gpt2-774m,gpt2-1558m} --rows {8,10,12} --seq 1024" + alone +
           " --flops {100T,125T,150T}" + links,
       {{"ranks", "/ranks"}},
       most_ranks,
       explain_most_ranks},
      {"What is the smallest number of rows of a rank at which prefetch hides the links in "
       "forward? From this number on, a rank waits in forward only for the all-gathers of the root "
       "and of the first block, and more rows do not shorten this waiting. Every rank has a host "
       "of its own. Find --rows. " +
           options,
       "--model {gpt2-355m,gpt2-774m,gpt2-1558m} --seq {128,256} --world {8,16,32,64,128}" + alone +
           " --flops {90T,140T,210T}" + links,
       {{"rows", "/rows"}},
       fewest_rows,
       explain_fewest_rows},
      {"A rank has a memory of @ GB. Compare the strategies full, grad_op and hybrid; with "
       "hybrid, each of the two hosts has a replica. Which of the strategies whose peak is below "
       "this memory has the fastest step, and how long does this step take? The optimizer is "
       "AdamW. Sums between replicas are sent in fp32, and a rank continues only when such a sum "
       "has ended, so it waits for each of them. " +
           options,
       "--model gpt2-1558m --wrap block --param-dtype bf16 --checkpoint-activations all --rows "
       "{1,2} --seq {256,384,512} --flops {150T,200T} {--world 8 --gpus-per-host 4 @5.2,--world 8 "
       "--gpus-per-host 4 @10,--world 4 --gpus-per-host 2 @11,--world 16 --gpus-per-host 8 @8} "
       "--intra 5us,{150GB/s,300GB/s} --inter {10us,20us},{12GB/s,16GB/s,25GB/s}",
       {{"fastest", "/fastest"}, {"milliseconds", "/milliseconds"}},
       fastest_strategy,
       explain_fastest_strategy},
      {"How many seconds does it take to save a checkpoint if every host writes @ GB/s and every "
       "rank writes its shards? The checkpoint has the parameters and both moments of AdamW, all "
       "of them in fp32.",
       "--model gpt3-175b --rows 1 --wrap block --optimizer adamw --world {128,256,512,1024} "
       "--gpus-per-host {4,8} @{0.8,1.5,2.5,4,6}",
       {{"seconds", "/seconds"}},
       checkpoint_time,
       explain_checkpoint_time},
  };
}

}  // namespace fsdp
