"""A peer for benchmarks/collectives: PyTorch's Gloo over TCP. Reads "allreduce elements
reps" lines, sums that many floats over all ranks in place, and answers with nanoseconds
per call, of the slowest rank. The arguments are the number of ranks and, of those that
the first one starts, the rank and where the first one listens.
"""

import datetime
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist


def prepare(rank, size, n):
    """Sums once, checks the result, and gives zeros: their sums stay what they are."""
    ramp = torch.arange(n, dtype=torch.int64) % 7
    x = (ramp + rank).to(torch.float32)
    dist.all_reduce(x)
    if not torch.equal(x, (ramp * size + size * (size - 1) // 2).to(torch.float32)):
        raise SystemExit(f"a sum of {n} elements is wrong")
    return x.zero_()


def main():
    size, rank = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    port = int(sys.argv[3]) if rank else 0
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, datetime.timedelta(minutes=1), wait_for_workers=False)
    others = []
    if rank == 0:
        for r in range(1, size):
            argv = [sys.executable, __file__, str(size), str(r), str(store.port)]
            others.append(subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    if rank == 0:
        print(f"Gloo of PyTorch {torch.__version__}", flush=True)
    last = None
    for line in sys.stdin:
        for p in others:
            p.stdin.write(line)
            p.stdin.flush()
        n, reps = map(int, line.split()[1:])
        if n != last:
            x, last = prepare(rank, size, n), n
        dist.all_reduce(x)  # warm
        dist.barrier()
        start = time.perf_counter_ns()
        for _ in range(reps):
            dist.all_reduce(x)
        took = torch.tensor([time.perf_counter_ns() - start])
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(took.item() // reps, flush=True)
    for p in others:
        p.stdin.close()
    for p in others:
        p.wait()


main()
