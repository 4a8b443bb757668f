"""A peer for benchmarks/peers: reads "kernel size... reps" lines, runs the
kernel in PyTorch eager mode, and answers with nanoseconds per call.
"""

import sys
import time

import torch
import torch.nn.functional as F


def rmsnorm(n, h):
    x, w = torch.randn(n, h), torch.randn(h)
    if hasattr(F, "rms_norm"):
        return lambda: F.rms_norm(x, (h,), w, 1e-5)
    return lambda: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * w


def swiglu(n, i):
    z, u = torch.randn(n, i), torch.randn(n, i)
    return lambda: F.silu(z) * u


def crossentropy(n, v):
    z, y = torch.randn(n, v, requires_grad=True), torch.randint(0, v, (n,))

    def run():
        z.grad = None
        F.cross_entropy(z, y).backward()

    return run


def adamw(n):
    w = torch.nn.Parameter(torch.randn(n))
    w.grad = torch.randn(n)
    try:
        opt = torch.optim.AdamW([w], lr=1e-3, weight_decay=0.1, fused=True)
        opt.step()
    except (RuntimeError, TypeError):
        opt = torch.optim.AdamW([w], lr=1e-3, weight_decay=0.1, foreach=True)
    return opt.step


def heads(t, h, kv, d):
    q, k, v = torch.randn(1, h, t, d), torch.randn(1, kv, t, d), torch.randn(1, kv, t, d)
    return q, k.repeat_interleave(h // kv, 1), v.repeat_interleave(h // kv, 1)


def causal(q, k, v):
    if hasattr(F, "scaled_dot_product_attention"):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    t, d = q.shape[-2:]
    hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
    return (q @ k.transpose(-1, -2) * d**-0.5).masked_fill(hidden, float("-inf")).softmax(-1) @ v


def attention(t, h, kv, d):
    q, k, v = heads(t, h, kv, d)
    return lambda: causal(q, k, v)


def attentiongrad(t, h, kv, d):
    q, k, v = (x.requires_grad_() for x in heads(t, h, kv, d))
    do = torch.randn(1, h, t, d)

    def run():
        q.grad = k.grad = v.grad = None
        causal(q, k, v).backward(do)

    return run


def main():
    torch.set_num_threads(int(sys.argv[1]))
    print(torch.__version__, torch.backends.cpu.get_cpu_capability() if hasattr(torch.backends, "cpu") else "", flush=True)
    kernels = {f.__name__: f for f in (rmsnorm, swiglu, crossentropy, adamw, attention, attentiongrad)}
    made = {}
    for line in sys.stdin:
        name, *sizes = line.split()
        *sizes, reps = map(int, sizes)
        key = (name, *sizes)
        if key not in made:
            made = {key: kernels[name](*sizes)}
            made[key]()
        run = made[key]
        start = time.perf_counter_ns()
        for _ in range(reps):
            run()
        print((time.perf_counter_ns() - start) // reps, flush=True)


main()
