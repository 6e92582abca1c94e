#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of PyTorch's training, started by ../compare_torch.py: DDP, FSDP (FULL_SHARD of
FullyShardedDataParallel) or FSDP2 (fully_shard), by gloo on processors, in fp32 and eager mode. The
last line that rank 0 prints is JSON: the loss of each step, and tokens a second of the second half
of the steps."""
import argparse
import json
import os
import pathlib
import sys
import time
import warnings

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
try:
    import torch
    import torch.distributed as dist
except ImportError as missing:
    sys.exit(f"{missing}: install PyTorch, and name its Python with --python")

import model as gpt
import workload

# FSDP says so in each process: gradients of a shard are views, nothing to be done about it here.
warnings.filterwarnings("ignore", category=UserWarning)
warnings.filterwarnings("ignore", category=FutureWarning)


def spread_ddp(model, _):
    from torch.nn.parallel import DistributedDataParallel
    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def spread_fsdp(model, _):
    from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    return FullyShardedDataParallel(model, sharding_strategy=ShardingStrategy.FULL_SHARD,
                                    auto_wrap_policy=ModuleWrapPolicy({gpt.Block}),
                                    device_id=torch.device("cpu"), use_orig_params=True)


def spread_fsdp2(model, ranks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    mesh = init_device_mesh("cpu", (ranks,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


SPREAD = {"ddp": spread_ddp, "fsdp": spread_fsdp, "fsdp2": spread_fsdp2}


def optimizer_of(model, matrices):
    """AdamW that decays matrices alone. A flat shard has lost the shape, so names decide."""
    parameters = [(name.replace("_fsdp_wrapped_module.", "").removeprefix("module."), parameter)
                  for name, parameter in model.named_parameters()]
    groups = [{"params": [p for name, p in parameters if (name in matrices) == decays],
               "weight_decay": workload.WEIGHT_DECAY if decays else 0.0}
              for decays in (True, False)]
    return torch.optim.AdamW(groups, lr=workload.LEARNING_RATE, betas=workload.BETAS,
                             eps=workload.EPSILON, fused=True)


def clip(model, kind):
    if kind == "fsdp":
        model.clip_grad_norm_(workload.CLIP_NORM)
    else:
        torch.nn.utils.clip_grad_norm_(model.parameters(), workload.CLIP_NORM)


def batches_of(args, context, steps):
    """(inputs, targets) of each step, read before the clock runs."""
    share = workload.Share(args.rank, args.ranks, args.batch)
    text = args.text.read_bytes()
    for step in range(steps):
        windows = torch.tensor([list(each) for each in share.windows(text, context, step)])
        yield windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def train(args):
    """Losses of this rank, and seconds of the steps after the first args.steps + 1."""
    vocabulary, context, channels, heads, layers = args.shape
    model = gpt.Gpt(vocabulary, context, channels, heads, layers)
    model.load(workload.read_checkpoint(args.checkpoint))
    matrices = {name for name, parameter in model.named_parameters() if parameter.dim() > 1}
    model = SPREAD[args.kind](model, args.ranks)
    optimizer = optimizer_of(model, matrices)
    steps = 2 * args.steps + 1
    losses, begin = [], 0.0
    for step, (inputs, targets) in enumerate(list(batches_of(args, context, steps))):
        if step == args.steps + 1:
            dist.barrier()
            begin = time.perf_counter()
        for group in optimizer.param_groups:
            group["lr"] = workload.learning_rate(step, steps)
        loss = model(inputs, targets)
        loss.backward()
        clip(model, args.kind)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.item())
    dist.barrier()
    return losses, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=SPREAD, required=True)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--meeting", required=True, help="file in which ranks find each other")
    parser.add_argument("--checkpoint", type=pathlib.Path, required=True)
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--shape", type=int, nargs=5, required=True,
                        help="vocabulary, context, channels, heads, layers")
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    dist.init_process_group("gloo", init_method=f"file://{args.meeting}", rank=args.rank,
                            world_size=args.ranks)
    losses, seconds = train(args)
    mean = torch.tensor(losses, dtype=torch.float64)
    dist.all_reduce(mean)
    tokens = args.steps * workload.SLOTS * args.batch * args.shape[1]
    if args.rank == 0:
        print(json.dumps({"version": torch.__version__, "losses": (mean / args.ranks).tolist(),
                          "tokens_per_second": tokens / seconds}), flush=True)
    dist.barrier()
    # With FSDP, PyTorch 2.15 aborts now and then after this ("terminate called ...").
    os._exit(0)


if __name__ == "__main__":
    main()
