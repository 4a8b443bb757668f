"""A peer for benchmarks/peers: trains a Llama in PyTorch eager mode. Reads
"train vocab hidden layers heads kv_heads head_dim intermediate seq_len batch
reps" lines, takes reps optimizer steps (forward, backward, AdamW) and answers
with nanoseconds per step. "used 0" answers with the nanoseconds of processor
time per step of the last such line. The model of the last line is kept.
"""

import ctypes
import math
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, h):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(h))

    def forward(self, x):
        if hasattr(F, "rms_norm"):
            return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Block(nn.Module):
    def __init__(self, h, heads, kv, d, i):
        super().__init__()
        self.heads, self.kv, self.d = heads, kv, d
        self.norm1, self.norm2 = RMSNorm(h), RMSNorm(h)
        self.q = nn.Linear(h, heads * d, bias=False)
        self.k = nn.Linear(h, kv * d, bias=False)
        self.v = nn.Linear(h, kv * d, bias=False)
        self.o = nn.Linear(heads * d, h, bias=False)
        self.gate = nn.Linear(h, i, bias=False)
        self.up = nn.Linear(h, i, bias=False)
        self.down = nn.Linear(i, h, bias=False)

    def attention(self, x, cos, sin):
        b, t, _ = x.shape

        def split(y, n):
            return y.view(b, t, n, self.d).transpose(1, 2)

        q = rotate(split(self.q(x), self.heads), cos, sin)
        k = rotate(split(self.k(x), self.kv), cos, sin)
        v = split(self.v(x), self.kv)
        k = k.repeat_interleave(self.heads // self.kv, 1)
        v = v.repeat_interleave(self.heads // self.kv, 1)
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.full((t, t), -math.inf).triu(1)
            y = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(self.d) + mask, -1) @ v
        return self.o(y.transpose(1, 2).reshape(b, t, -1))

    def forward(self, x, cos, sin):
        x = x + self.attention(self.norm1(x), cos, sin)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, v, h, layers, heads, kv, d, i, t):
        super().__init__()
        self.embed = nn.Embedding(v, h)
        self.blocks = nn.ModuleList(Block(h, heads, kv, d, i) for _ in range(layers))
        self.norm, self.head = RMSNorm(h), nn.Linear(h, v, bias=False)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)
        angle = torch.arange(t)[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
        self.register_buffer("cos", torch.cat((angle, angle), -1).cos())
        self.register_buffer("sin", torch.cat((angle, angle), -1).sin())

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for b in self.blocks:
            x = b(x, self.cos, self.sin)
        z = self.head(self.norm(x))
        return F.cross_entropy(z.view(-1, z.shape[-1]), targets.view(-1))


def optimizer(model):
    """AdamW at its best setting: fused where this version has it on the CPU."""
    options = dict(lr=1e-3, betas=(0.9, 0.999), weight_decay=0.1)
    groups = [{"params": list(model.parameters())}]
    try:
        return torch.optim.AdamW(groups, fused=True, **options), "fused"
    except (RuntimeError, TypeError):
        return torch.optim.AdamW(groups, foreach=True, **options), "foreach"


def trainer(v, h, layers, heads, kv, d, i, t, batch):
    torch.manual_seed(1)
    model = Llama(v, h, layers, heads, kv, d, i, t)
    opt, _ = optimizer(model)
    tokens, targets = torch.randint(0, min(v, 256), (2, batch, t))

    def step():
        opt.zero_grad(set_to_none=True)
        model(tokens, targets).backward()
        opt.step()

    return step


def blas():
    """What computes the matrix products, as far as torch and the process say."""
    build = torch.__config__.show()
    names = [n for n in ("mkl", "openblas", "generic") if f"BLAS_INFO={n}" in build]
    if torch.backends.mkl.is_available():
        names.append("MKL available")
    if torch.backends.mkldnn.is_available():
        names.append("oneDNN available")
    try:
        with open("/proc/self/maps") as maps:
            path = next(line.split()[-1] for line in maps if "openblas" in line)
        core = ctypes.CDLL(path).openblas_get_corename
        core.restype = ctypes.c_char_p
        names.append(f"OpenBLAS kernel {core().decode()}")
    except (OSError, StopIteration, AttributeError):
        pass
    return ", ".join(names)


def main():
    torch.set_num_threads(int(sys.argv[1]))
    capability = torch.backends.cpu.get_cpu_capability() if hasattr(torch.backends, "cpu") else "unknown vectors"
    _, kind = optimizer(nn.Linear(2, 2))
    print(f"PyTorch {torch.__version__}, {capability}, BLAS {blas()}, AdamW {kind}", flush=True)
    key, step, used = None, None, 0
    for line in sys.stdin:
        what, *sizes, reps = line.split()
        if what == "used":
            print(used, flush=True)
            continue
        if sizes != key:
            step = None  # frees the memory of the last one first
            key, step = sizes, trainer(*map(int, sizes))
            step()
        start, before = time.perf_counter_ns(), time.process_time_ns()
        for _ in range(int(reps)):
            step()
        used = (time.process_time_ns() - before) // int(reps)
        print((time.perf_counter_ns() - start) // int(reps), flush=True)


main()
