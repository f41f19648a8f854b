#include <reproduce/registry.h>

namespace fsdp {

// described.h says how to read it.
const char* const kRows = R"(
# 1 gpt2xl | Writeup 3.1 | measured | 95 | long | ./fsdp reproduce --full
# 2 ddp | Writeup 3.1 | measured | 1 | all
= DDP on eight ranks against one process that plays them
$ --world 8 --recipe published --batch 8 --steps 3
: model, mode; peak, sha256
* small, single | --mode single
- small, ddp | --mode ddp
* medium, single | --model medium --mode single
- medium, ddp | --model medium --mode ddp
! gpt2xl, ddp | --model gpt2xl --mode ddp | needs 300 GB
> Writeup 3.1 has gpt2xl by DDP on eight GPUs. ./fsdp reproduce --full compares FSDP on eight ranks
 with one process.
# 3 small | Writeup 3.2 | measured | 1 | usual
# 4 strict | Writeup 3.3 | measured | 1 | usual
# 5 gpt2xl-memory | Writeup 4.1 | planned | 0 | all
= GPT-2 XL, 8 rows of 127 tokens for all ranks: GB of a rank at the peak
% P plan --model gpt2xl --recipe published --backend shm
: how, published; ; activations, all
@ one process, 40.6 | $P --mode single | activations | 4 | the peak: | 2
@ DDP on 8, 48.5 | $P --mode ddp --world 8 | activations | 4 | the peak: | 2
@ FSDP on 8, 22.0 | $P --world 8 | activations | 4 | the peak: | 2
. with two leaks | 22.0 | 0 | 16 N / 8 + 4 N + 4 N = 21.272
> N = 2,127,208,000. A program that frees neither what it has gathered (4 N) nor the gradients before
 they are sharded (4 N) holds 21.3 without any activations.
# 6 breakdown | Writeup 4.1 | planned | 0 | all
= GPT-2 XL as FSDP on 8: what a rank holds at the peak, GB
% P plan --model gpt2xl --recipe published --backend shm --world 8
: class, published; ; planned
@ parameters, 1.1 | $P | shards | 4
@ optimizer, 2.1 | $P | optimizer_state | 4
@ gathered, 15.0 | $P | gathered | 4
@ gradients, 1.1 | $P | gradients | 4
@ activations, 2.7 | $P | activations | 4
> Their 15.0 of buffers and 2.7 of overhead together are about 8.5 + 8.5: the two leaks.
# 7 weak | Writeup 4.2 | measured | 1 | all
= Weak scaling: gpt2-36m, 4 rows of 64 tokens for each rank
$ --mode fsdp --model gpt2-36m --recipe published --seq 64 --steps 8
: W; tokens/s, speedup, peak; published
* 1 | --world 1 --batch 4 | 1.0
* 2 | --world 2 --batch 8 | 1.9
* 4 | --world 4 --batch 16 | 3.7
* 8 | --world 8 --batch 32 | 7.2
> Writeup 4.2 keeps 20 GB a rank while the model grows with W: 1, 2, 4 and 8 billion parameters. Of
 a rank's bytes 16 N/W stay then; the root and two or three units are gathered whole, and they stay
 only if the model grows by more blocks, not by wider ones.
# 8 strong | Duke 1 | measured | 1 | all
= Strong scaling: gpt2-36m, 8 rows of 64 tokens for all ranks together
$ --mode fsdp --model gpt2-36m --recipe published --seq 64 --steps 8 --batch 8
: W; tokens/s, speedup, peak
* 1 | --world 1
* 2 | --world 2
* 4 | --world 4
* 8 | --world 8
# 9 memory | Writeup 1.1, Q1 | measured | 1 | usual
= Which classes W ranks divide: small model, MB of rank 0
$ --mode fsdp --model small --recipe published
: W, rows; shards, sharded_gradients, optimizer_state, gathered, gradients, rest, peak, mismatches
* 1, 32 | --world 1
* 2, 32 | --world 2
* 3, 33 | --world 3 --batch 33
* 4, 32 | --world 4
* 8, 32 | --world 8
> The most of each class in any phase; peak: of all together. mismatches: values of the first five
 classes, in each phase of each rank, that differ from the prediction by a byte. A line is ok if none
 does. Writeup 1.1 has 4N/W, Notes a third of all for W = 3: so it is for three classes, up to padding.
 What is gathered and its gradients do not shrink; rest (activations) does as the rows of a rank do.
= Peak of a rank, FSDP beside DDP: small model, MB
$ --mode fsdp --model small --recipe published
: W; DDP, peak, saves, needs
* 2 | --world 2
* 4 | --world 4
* 8 | --world 8
> FSDP saves (4 - 4/W) N and needs 2 R + 4 U; N: all units, R: the root, U: the largest other unit. A
 line is ok if FSDP is below DDP exactly when it saves more than it needs.
# 10 reshard | Writeup 1.3.4, 2.3 | measured | 1 | all
= Reshard after forward (full) or not (grad_op): small model, W = 4, MB of a rank
$ --mode fsdp --model small --recipe published --world 4
: strategy; all_gather, reduce_scatter, gathered, peak, sha256; their memory, their traffic
* full | --strategy full | N/W, 2 all-gathers
- grad_op | --strategy grad_op | N, 1 all-gather
> N is 18.8 MB, the root R 2.0, a block U 4.2. full gathers 3/4 (2N - R) and holds R + 2U, not N/W;
 grad_op gathers 3/4 N and holds N.
# 11 prefetch | Writeup 2.6, Q4 | measured | 3 | all
= Prefetch over links: small model, 4 rows of 127 tokens for each rank, ms of a step
$ --mode fsdp --model small --recipe published --steps 6
: W, link; off, ms a step, predicted, C, N, off / on, bound
* 2, 100us 1GB/s | --world 2 --batch 8 --link 100us,1GB/s
* 2, 100us 200MB/s | --world 2 --batch 8 --link 100us,200MB/s
* 2, 100us 50MB/s | --world 2 --batch 8 --link 100us,50MB/s
* 2, 2ms 1GB/s | --world 2 --batch 8 --link 2ms,1GB/s
* 2, 2ms 200MB/s | --world 2 --batch 8 --link 2ms,200MB/s
* 2, 2ms 50MB/s | --world 2 --batch 8 --link 2ms,50MB/s
* 2, 10ms 1GB/s | --world 2 --batch 8 --link 10ms,1GB/s
* 2, 10ms 200MB/s | --world 2 --batch 8 --link 10ms,200MB/s
* 2, 10ms 50MB/s | --world 2 --batch 8 --link 10ms,50MB/s
* 4, 2ms 1GB/s | --world 4 --batch 16 --link 2ms,1GB/s
* 4, 2ms 200MB/s | --world 4 --batch 16 --link 2ms,200MB/s
* 4, 2ms 50MB/s | --world 4 --batch 16 --link 2ms,50MB/s
> Of the quickest of five steps. C: what a rank computes; N: what its collectives take on the link
 one after another. Without prefetch a step takes at most C + N, with it at least the larger of the
 two. So off / on is at most (C + N) / max(C, N), and never above 2; Writeup 2.6 says 2 to 3. A line
 is ok if it is at most 5 % above this bound. busy: the two runs did not compute equally fast, so
 something else ran; repeat it on a quiet machine. Four ranks share the cores.
# 12 duplicated | Writeup 1.3.2, 5 | arithmetic | 0 | all
= Elements that are held if the root holds the parameters of its blocks too
: model; ; N, of blocks, held / N, published
. small | 4,708,608 | 4 x 1,049,088 | 1.89 | 2.37
. gpt2xl | 2,127,208,000 | 48 x 40,963,200 | 1.92 | 2.37
> 1 + blocks / N, which is below 2: an element is held once by its block and once by the root. 2.37
 needs a third level, and the document derives it nowhere. ./fsdp train --model gpt2xl --world 8
 --print-units --wrap block prints N and the blocks.
# 13 init | Writeup 1.3.3, 5 | test | 1 | never | ./fsdp check 1 --solutions
# 14 arrangements | Writeup 3.2 | measured | 8 | all
= Eight parts of a batch on 1, 2, 4 or 8 ranks against one process, small model: DDP
$ --model small --recipe published --batch 8 --parts 8
x clip | off: | 0.1: --clip 0.1
y W | 1: --world 1 | 2: --world 2 | 4: --world 4 | 8: --world 8
y net | shm: --backend shm | gloo: --backend gloo
y acc | each: | last: --accumulate last
y ckpt | none: | all: --checkpoint-activations all | every:2: --checkpoint-activations every:2
p --mode ddp | --mode single --world 1
p --mode single | --mode single --world 1
> Every two values of every two columns meet in some line. A line is ok if bytes are as predicted, and
 the parameters are those of one process that computes the eight parts. acc: --accumulate; ckpt:
 --checkpoint-activations. The last lines are single, which plays W ranks.
= The same with FSDP
$ --model small --recipe published --batch 8 --parts 8
x clip | off: | 0.1: --clip 0.1
y W, strategy | 1 full: --world 1 | 2 full: --world 2 | 2 grad_op: --world 2 --strategy grad_op
 | 2 no: --world 2 --strategy no | 4 full: --world 4 | 4 grad_op: --world 4 --strategy grad_op
 | 4 no: --world 4 --strategy no | 4 in twos: --world 4 --strategy hybrid --shard-size 2
 | 8 full: --world 8 | 8 grad_op: --world 8 --strategy grad_op | 8 no: --world 8 --strategy no
 | 8 in twos: --world 8 --strategy hybrid --shard-size 2
 | 8 in fours: --world 8 --strategy hybrid --shard-size 4
y net | shm: --backend shm | gloo: --backend gloo
y pref | on: | off: --prefetch off
y wrap | auto: | block: --wrap block | none: --wrap none
y acc | each: | last: --accumulate last
y ckpt | none: | all: --checkpoint-activations all | every:2: --checkpoint-activations every:2
p --mode fsdp | --mode single --world 1
= Twelve parts on 3 or 6 ranks against one process that plays them: FSDP
$ --model small --recipe published --batch 12 --parts 12
x W, strategy | 3 full: --world 3 | 3 no: --world 3 --strategy no | 6 full: --world 6
 | 6 no: --world 6 --strategy no | 6 in twos: --world 6 --strategy hybrid --shard-size 2
 | 6 in threes: --world 6 --strategy hybrid --shard-size 3
x clip | off: | 0.1: --clip 0.1
x acc | each: | last: --accumulate last
y net | shm: --backend shm | gloo: --backend gloo
y pref | on: | off: --prefetch off
y wrap | auto: | block: --wrap block | none: --wrap none
y ckpt | none: | all: --checkpoint-activations all | every:2: --checkpoint-activations every:2
p --mode fsdp | --mode single
= The same with DDP
$ --model small --recipe published --batch 12 --parts 12
x W | 3: --world 3 | 6: --world 6
x clip | off: | 0.1: --clip 0.1
x acc | each: | last: --accumulate last
y net | shm: --backend shm | gloo: --backend gloo
y ckpt | none: | all: --checkpoint-activations all | every:2: --checkpoint-activations every:2
p --mode ddp | --mode single
# 15 questions | Writeup 6 | test | 1 | never
 | build/default/bin/reference_tests --gtest_filter='HandoutOfTask*'
# 16 pictures | Writeup 1.2, Notes | measured | 1 | never
 | ./fsdp train --mode fsdp --world 3 --batch 3 --steps 2 --trace step.html
# 17 modular | Manual, Validation | measured | 2 | all
= Modular addition: gpt2-tiny, 600 steps
$ --recipe modular --parts 4 --steps 600 --eval-every 20
: Manual's name; tokens/s, peak, solved at, loss, sha256
* single_gpu_fp32 | --mode single
- ddp_fp32 | --mode ddp --world 2
- (ours in fp32) | --mode fsdp --world 2
* fsdp_manual_bf16 | --mode fsdp --world 2 --wrap none --param-dtype bf16
@ fsdp_official | bench --peers --recipe modular --model gpt2-tiny --world 2 --rows 128 --rounds 1
 --steps 597 | FSDP2 | 1 | FSDP2 all | 11, 4, 8
> solved at: the first of every 20 steps after which all that is held out is right. fsdp_official is
 PyTorch's FSDP2. Its losses are those of ours for 100 steps, to 1e-6; later roundings grow.
# 18 resume | Manual, Validation | measured | 1 | all
= Killed and resumed: small model, 6 steps of 4 parts
$ --mode fsdp --model small --recipe published --batch 8 --parts 4 --steps 6
: run, saved; sha256, state
* whole, - | --world 2
! killed, sharded | --world 2 --checkpoint-dir %/sharded --fault rank=1,kill=100
- resumed on 1, sharded | --world 1 --resume %/sharded
- resumed on 2, sharded | --world 2 --resume %/sharded
- resumed on 4, sharded | --world 4 --resume %/sharded
! killed, full | --world 2 --checkpoint-dir %/full --checkpoint-format full --fault rank=1,kill=300
- resumed on 2, full | --world 2 --resume %/full
# 19 telemetry | Manual, Loop | measured | 1 | all
= Where the time of a step goes: small model, W = 2, ms of rank 0
$ --model small --recipe published --world 2
: mode; ms a step, computing, waiting, data, optimizer, ms a call
* single | --mode single
* ddp | --mode ddp
* fsdp | --mode fsdp
* fsdp over gloo | --mode fsdp --backend gloo
> Medians over steps. ms a call: in wait() of a collective.
# 20 traces | Manual, Loop | measured | 1 | never
 | ./fsdp train --mode fsdp --world 2 --wrap none --steps 3 --trace step.json
# 21 matrix | Notes, Idea | measured | 2 | all
= FSDP against one process and DDP, batch 24, 3 steps
$ --recipe published --batch 24 --steps 3
x W | 2: --world 2 | 3: --world 3 | 4: --world 4 | 8: --world 8
x model | small: --model small | tiny: --model gpt2-tiny
x clip | off: | 0.1: --clip 0.1
x opt | adamw: | sgd: --optimizer sgd --lr 0.1
x groups | 1: | 2: --no-decay ln|bias|embed|wpe
y net | shm: --backend shm | gloo: --backend gloo
y meta | on: | off: --meta-init off
y pref | on: | off: --prefetch off
y reshard | on: | off: --reshard-after-forward off
y limit | 1: --limit 1 | 2: | 3: --limit 3
y wrap | block: --wrap block | none: --wrap none | type: --wrap type:CausalAttention
 | size: --wrap size:16000
p --mode fsdp | --mode single | --mode ddp
> Every two values of every two columns meet in some line, which is ok if the bytes of fsdp are as
 predicted, and fsdp, single and ddp end with the same parameters. tiny: gpt2-tiny, which has a tied
 head and odd sizes. groups: of parameters, the second one without weight decay.
# 22 third | Notes, Sharding | measured | 1 | as memory | ./fsdp reproduce --only memory
# 23 traffic | Writeup 6, Notes | measured | 1 | usual
= What a rank receives in a step: small model, MB
$ --model small --recipe published
: W, run; all_gather, reduce_scatter, all_reduce, calls
* 2, ddp | --mode ddp --world 2
* 2, fsdp | --mode fsdp --world 2
* 2, no reshard | --mode fsdp --world 2 --reshard-after-forward off
* 4, ddp | --mode ddp --world 4
* 4, fsdp | --mode fsdp --world 4
* 4, no reshard | --mode fsdp --world 4 --reshard-after-forward off
* 8, ddp | --mode ddp --world 8
* 8, fsdp | --mode fsdp --world 8
* 8, no reshard | --mode fsdp --world 8 --reshard-after-forward off
> A line is ok if all bytes are as predicted: all_gather (W-1)/W (2N - R), without reshard (W-1)/W N;
 reduce_scatter (W-1)/W N; DDP's all_reduce 2 (W-1)/W N; the rest of it is the mean loss.
> N is 18.8 MB in 5 units. Writeup Q2 and Q3: a reduce-scatter moves 2 (W-1)/W N, as an all-reduce.
 Counted: half of it, 7/8 N. Writeup Q3: FSDP moves 2 to 3 N, DDP 2 N. Counted: 7/8 (3 N - R) and
 7/8 2 N. Digest: one all-gather for forward and backward of a layer. Counted: two, and one for the
 root. Notes: gradients are synchronized each epoch, parameters broadcast. Counted: a reduce-scatter
 for each unit in each step, and no broadcast.
# 24 duke | Duke 3.1 | measured | 20 | all
= Duke 3.1: two ranks, 16 rows of 64 tokens each, one unit
% B --batch 32 --seq 64 --lr 2e-4 --data pattern --world 2 --wrap none
% S $B --steps 10 --model duke-s
% M $B --steps 3 --model duke-m
% L $B --steps 2 --model duke-l
% C --checkpoint-activations all
% P plan --mode ddp --world 2 --batch 32 --seq 64 --param-dtype fp16
: size, mode, dtype, ckpt; tokens/s, peak; their tokens/s, GB, loss
* S, ddp, fp16, no | $B --steps 2 --model duke-s --mode ddp --param-dtype fp16 | 149138, 1.11, 0.6937
* S, ddp, fp16, yes | $B --steps 2 --model duke-s --mode ddp --param-dtype fp16 $C | 98054, 0.85, 0.6937
* S, ddp, fp32, no | $S --mode ddp | 78287, 0.97, 0.7287
* S, ddp, fp32, yes | $S --mode ddp $C | 75713, 0.97, 0.7233
* S, fsdp, bf16, no | $S --mode fsdp --param-dtype bf16 | 152266, 1.21, 0.6904
* S, fsdp, bf16, yes | $S --mode fsdp --param-dtype bf16 $C | 99503, 0.74, 0.6904
* S, fsdp, bf16, yes (no limit) | $S --mode fsdp --param-dtype bf16 $C --limit all | 99772, 0.74, 0.6904
* S, fsdp, fp32, yes | $S --mode fsdp $C | 72642, 0.86, 0.7175
@ M, ddp, fp16, no, needs a GPU | $P --model duke-m | the peak: | 2 GB | 58280, 2.81, 3.5084
@ M, ddp, fp16, yes, needs a GPU | $P --model duke-m $C | the peak: | 2 GB | 50014, 2.27, 3.5084
* M, ddp, fp32, no | $M --mode ddp | 23926, 2.33, 1.2583
* M, ddp, fp32, yes | $M --mode ddp $C | 22855, 2.33, 1.9299
* M, fsdp, bf16, no | $M --mode fsdp --param-dtype bf16 | 51924, 2.80, 1.7943
* M, fsdp, bf16, yes (no limit) | $M --mode fsdp --param-dtype bf16 $C --limit all | 45510, 2.45, 1.7943
* M, fsdp, bf16, yes | $M --mode fsdp --param-dtype bf16 $C | 47153, 2.45, 1.7943
* M, fsdp, fp32, yes | $M --mode fsdp $C | 21030, 2.51, 1.0896
@ L, ddp, fp16, no, needs a GPU | $P --model duke-l | the peak: | 2 GB | 31498, 5.38, 4.8190
@ L, ddp, fp16, yes, needs a GPU | $P --model duke-l $C | the peak: | 2 GB | 25595, 4.96, 4.8190
* L, ddp, fp32, no | $L --mode ddp | 11411, 5.02, 4.8706
* L, ddp, fp32, yes | $L --mode ddp $C | 11948, 5.02, 4.8706
* L, fsdp, bf16, no | $L --mode fsdp --param-dtype bf16 | 27379, 5.38, 6.7859
* L, fsdp, bf16, yes | $L --mode fsdp --param-dtype bf16 $C | 22841, 5.37, 6.7859
* L, fsdp, bf16, yes (no limit) | $L --mode fsdp --param-dtype bf16 $C --limit all | 24242, 5.37, 6.7859
* L, fsdp, fp32, yes | $L --mode fsdp $C | 10865, 5.43, 4.4307
> Theirs on two GPUs, ours on the cores of this machine; peak in MB. Their losses are those of 8
 epochs: see duke-loss.
> fp16 is planned for M and L: on a CPU without its instructions it is 25 times as slow as bf16.
> They have FSDP above DDP for L. One unit on two ranks never pays: it saves (4 - 4/W) N = 2 N, and
 needs 2 R = 2 N for the gathered unit and its gradient.
# 25 duke-loss | Duke Fig. 3.3 | measured | 50 | long
= Loss on a pattern with noise: Duke's S, 300 steps
$ --batch 32 --seq 64 --lr 2e-4 --data pattern --world 2 --wrap none --steps 300 --model duke-s
: mode; first loss, loss, sha256; theirs
* ddp fp32 | --mode ddp | 0.7287
- fsdp fp32 | --mode fsdp | 0.7175
* fsdp bf16 | --mode fsdp --param-dtype bf16 | 0.6904
# 26 duke-precision | Duke 3.2 to 3.4 | published | 0 | all
= Ratios within Duke's table
: size; ; DDP fp16 / fp32, FSDP bf16 / fp32, ours, fp32: GB by ckpt, speed, fp16 - fp32, lowest loss
. S | 149138 / 78287 = 1.90 | 99503 / 72642 = 1.37 | needs a GPU | -0.00 | 0.97 | +0.14 GB | 0.690
. M | 58280 / 23926 = 2.44 | 47153 / 21030 = 2.24 | needs a GPU | -0.00 | 0.96 | +0.48 GB | 1.090
. L | 31498 / 11411 = 2.76 | 22841 / 10865 = 2.10 | needs a GPU | -0.00 | 1.05 | +0.36 GB | 4.431
> 3.3 says 2 to 3 times as fast by 16 bits in all configurations; S is below 2. Checkpointing in fp32
 saves no byte and changes the speed by 5 % at most: it did nothing there. fp16 needs more than fp32:
 autocast keeps 16-bit copies beside fp32 parameters.
> No model gets below -0.95 ln 0.95 - 0.05 ln (0.05 / 16384) = 0.684 nats: a token is the pattern's
 with 0.95, else one of 16,384. Untrained, it has ln 16384 = 9.70. So S has converged, M partly, L
 hardly: 3.4 compares early points. No loss scale is named, which may explain 3.51 of M in fp16.
# 27 limits | Duke 3.1 | measured | 1 | all
= Units gathered at a time, over a link of 1 ms and 200 MB/s: gpt2-36m, W = 2
$ --mode fsdp --model gpt2-36m --recipe published --batch 2 --seq 64 --steps 4 --world 2
 --link 1ms,200MB/s
: limit; ms a step, gathered, peak, sha256
* 1 | --limit 1
- 2 | --limit 2
- 4 | --limit 4
- all | --limit all
> Duke without a limit: S 99772 / 99503 = +0.3 %, M 45510 / 47153 = -3.5 %, L 24242 / 22841 = +6.1 %,
 and not a byte more. It has one unit, which leaves nothing to limit: so much its runs vary.
# 28 llama-13b | Digest, 13B | planned | 0 | all
= 13B on 64 ranks in hosts of 8, bf16, 1 row of 4095 tokens each, all recomputed: GB of a rank
% P plan --model llama-13b --world 64 --rows 1 --seq 4095 --param-dtype bf16 --checkpoint-activations all
: strategy, published; ; gathered, gradients, activations, all, within, between
@ full, 7.3 | $P | gathered | 4 | gradients | 4 | activations | 4 | the peak: | 2 | received | 4, 9
@ hybrid, 30 | $P --strategy hybrid --shard-size 8 | gathered | 4 | gradients | 4 | activations | 4
 | the peak: | 2 | received | 4, 9
> Digest counts one buffer of about 1 GB; two units are gathered, and the root, and gradients are there
 besides. Reduced gradients stay fp32 here. Between hosts: its 51 + 26 GB by full, its 11 by hybrid.
# 29 zero | Digest, Table | arithmetic | 0 | all
= ZeRO: P = 7.5 billion parameters on 64 ranks, GB of a rank
: what is divided; ; bytes, GB, published
. nothing | 16 P | 120.000 | 120
. optimizer state | 4 P + 12 P / 64 | 31.406 | 31.4
. and gradients | 2 P + 14 P / 64 | 16.641 | 16.6
. and parameters | 16 P / 64 | 1.875 | 1.9
> Parameters and gradients in 16 bits, and 12 bytes of fp32 parameters and two moments. Activations,
 gathered units and their gradients are not counted.
# 30 flops | Digest, Table | planned | 0 | all
= Rows of 2048 tokens, bf16, all recomputed: GB of a rank, and seconds of a step
% P plan --seq 2048 --param-dtype bf16 --checkpoint-activations all --intra 5us,300GB/s --inter 20us,25GB/s
% G $P --model gpt3-175b --world 128 --flops 173T
: model, W, rows, published GB; ; activations, all, step, waiting
@ 175B, 128, 1, 30 | $G --rows 1 | activations | 4 | the peak: | 2 | a step takes | 3, 10
@ 175B, 128, 8, 30 | $G --rows 8 | activations | 4 | the peak: | 2 | a step takes | 3, 10
@ 1T, 512, 1, 75 | $P --model 1t --world 512 --flops 84T --rows 1 | activations | 4 | the peak: | 2
 | a step takes | 3, 10
> A block of 175B has 1.8 billion parameters: two gathered in 16 bits are 7.3 GB, and their gradients
 as much; a block of 1T has 7.9. --flops: 173 and 84 TFLOPs of the table, of computing alone.
# 31 wraps | Digest, Breaks | measured | 1 | all
= Units over a link of 1 ms and 200 MB/s: small model, W = 2, 8 rows
$ --mode fsdp --model small --recipe published --batch 8 --steps 6 --world 2 --link 1ms,200MB/s
: wrap; units, calls, ms a step, predicted, gathered, peak, sha256
* none | --wrap none
- block | --wrap block
- type:CausalAttention | --wrap type:CausalAttention
- size:1000000 | --wrap size:1000000
> Too coarse: nothing is left to overlap, and all is gathered at once. Too fine: each collective costs
 a latency more.
# 32 flat | Digest, Clever | measured | 1 | all
= 16 MB in one call or in 1000 of 16 kB: W = 2
: transport, operation, MB; ; ms a call, GB/s
% O bench --transport --world 2 --megabytes 16 --rounds 101
% T bench --transport --world 2 --megabytes 0.016 --rounds 1001
@ shm, all_gather, 16 | $O | shm 2 all_gather | 3, 4
@ shm, all_gather, 0.016 | $T | shm 2 all_gather | 3, 4
@ gloo, all_gather, 16 | $O | gloo 2 all_gather | 3, 4
@ gloo, all_gather, 0.016 | $T | gloo 2 all_gather | 3, 4
# 33 strategies | Digest, Wins 3 | measured | 1 | all
= Strategies: small model, W = 4, MB that a rank receives in a step and holds at most
$ --mode fsdp --model small --recipe published --world 4
: strategy; all_gather, reduce_scatter, all_reduce, shards, optimizer_state, gathered, peak, sha256
* full | --strategy full
- grad_op | --strategy grad_op
- hybrid | --strategy hybrid --shard-size 2
- no | --strategy no
> all_gather and reduce_scatter run inside a replica, all_reduce between replicas.
# 34 checkpoints | Digest, Breaks | measured | 1 | all
= Checkpoints: gpt2-36m, W = 2, 6 steps with one after each
$ --mode fsdp --world 2 --model gpt2-36m --recipe published --batch 2 --seq 16 --steps 6
: format; files, MB, bytes / N, s of the run
* none
* full | --checkpoint-dir %/one --keep 1 --checkpoint-format full
* sharded | --checkpoint-dir %/parts --keep 1
> 4 bytes of a parameter and 8 of its moments. Digest's local is sharded here: each rank writes what it
 owns. A save takes a sixth of what the run takes longer than the first.
# 35 ranks | Writeup 4.1 | measured | 5 | all
= Peak of a rank: GPT-2, 8 rows of 64 tokens for all ranks, MB
$ --mode fsdp --recipe published --batch 8 --seq 64 --steps 2
: model, W; params, 16 N / W, peak
* gpt2-124m, 1 | --model gpt2-124m --world 1
* gpt2-124m, 2 | --model gpt2-124m --world 2
* gpt2-124m, 4 | --model gpt2-124m --world 4
* gpt2-124m, 8 | --model gpt2-124m --world 8
* gpt2-355m, 8 | --model gpt2-355m --world 8
= The two leaks of gpt2xl-memory, made by options: gpt2-124m, W = 8, 16 parts of 1 row, MB; N is 498
$ --mode fsdp --recipe published --model gpt2-124m --world 8 --batch 16 --parts 16 --seq 64 --steps 2
: kept; gathered, gradients, rest, peak, sha256
* nothing
- units after forward and gradients up to the last part | --strategy grad_op --accumulate last
= The same, planned, GB
: model, W; ; activations, all
% P plan --recipe published --batch 8 --seq 64 --backend shm --world 8
@ gpt2-774m, 8 | $P --model gpt2-774m | activations | 4 | the peak: | 2
@ gpt2-1558m, 8 | $P --model gpt2-1558m | activations | 4 | the peak: | 2
)";

}  // namespace fsdp
