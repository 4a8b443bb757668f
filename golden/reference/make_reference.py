#!/usr/bin/env python3
"""Make golden/reference/*.txt: what PyTorch computes for two small models.

The model is written from the public definition of Llama (RMSNorm, rotary
positions with the half rotation, grouped-query attention, SwiGLU) with
torch.nn.functional and autograd in float64; the steps are those of
torch.optim.AdamW and LambdaLR. Nothing here is taken from the Go code, so the
numbers are an oracle for it. The loss is the mean over the valid targets of the
whole batch.

Weights, tokens and targets come from an integer generator defined below and are
written into the files, so that a reader of the files needs no generator.

Needs PyTorch (Debian: apt-get install python3-torch). Usage:

    python3 golden/reference/make_reference.py [directory]
"""

import math
import struct
import sys
from pathlib import Path

try:
    import torch
    import torch.nn.functional as F
except ImportError:
    sys.exit("make_reference.py needs PyTorch: apt-get install python3-torch")

STEPS = 3
IGNORED = -1

CONFIGS = [
    dict(name="untied", vocab=61, hidden=24, layers=2, heads=4, kv_heads=2, head_dim=6, intermediate=40, seq_len=11,
         tied=False, qkv_bias=False, linear_bias=False, norm_eps=1e-5, rope_theta=10000.0, seed=2024,
         valid=[11, 7, 0, 10, 3]),
    dict(name="tied", vocab=50, hidden=20, layers=2, heads=6, kv_heads=3, head_dim=4, intermediate=28, seq_len=11,
         tied=True, qkv_bias=True, linear_bias=True, norm_eps=1e-6, rope_theta=500.0, seed=77,
         valid=[4, 0, 11, 9, 6]),
]

OPTIMIZERS = {
    "untied": dict(lr=2e-3, beta1=0.9, beta2=0.95, eps=1e-8, decay=0.1, clip=0.88, warmup=2, horizon=6, min_lr=2e-4),
    "tied": dict(lr=3e-3, beta1=0.8, beta2=0.99, eps=1e-8, decay=0.05, clip=2.2, warmup=1, horizon=5, min_lr=1e-3),
}


class Integers:
    """splitmix64: the same integers anywhere."""

    def __init__(self, seed):
        self.state = seed

    def next(self):
        mask = (1 << 64) - 1
        self.state = (self.state + 0x9E3779B97F4A7C15) & mask
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    def below(self, n):
        return self.next() % n

    def unit(self):
        """A multiple of 2^-20 in [-1, 1)."""
        return ((self.next() >> 43) - (1 << 20)) / (1 << 20)


def float32(x):
    """x rounded to the nearest float32."""
    return struct.unpack("f", struct.pack("f", x))[0]


def shapes(c):
    """Parameter names and shapes, in the order of the files."""
    h, q, kv, i = c["hidden"], c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"], c["intermediate"]
    yield "model.embed_tokens.weight", (c["vocab"], h)
    for n in range(c["layers"]):
        layer = f"model.layers.{n}."
        yield layer + "input_layernorm.weight", (h,)
        for name, out, wide, bias in [("self_attn.q_proj", q, h, "qkv_bias"), ("self_attn.k_proj", kv, h, "qkv_bias"),
                                      ("self_attn.v_proj", kv, h, "qkv_bias"), ("self_attn.o_proj", h, q, "linear_bias"),
                                      (None, h, 0, None), ("mlp.gate_proj", i, h, "linear_bias"),
                                      ("mlp.up_proj", i, h, "linear_bias"), ("mlp.down_proj", h, i, "linear_bias")]:
            if name is None:
                yield layer + "post_attention_layernorm.weight", (h,)
                continue
            yield layer + name + ".weight", (out, wide)
            if c[bias]:
                yield layer + name + ".bias", (out,)
    yield "model.norm.weight", (h,)
    if not c["tied"]:
        yield "lm_head.weight", (c["vocab"], h)


def spread(name):
    """The largest magnitude of a parameter's initial values (of norms: their
    distance from 1). Branches that are small beside the residual stream keep
    the errors of float32, and the bounds on them, from growing layer by layer."""
    for part, value in [("norm.weight", 1 / 8), ("embed_tokens", 1 / 2), ("lm_head", 1 / 16), ("q_proj", 1 / 8),
                        ("k_proj", 1 / 8), ("gate_proj", 1 / 32), ("up_proj", 1 / 32)]:
        if part in name:
            return value
    return 1 / 64


def initial(c, integers):
    """Uniform values, norms about 1 and others about 0: all float32."""
    weights = {}
    for name, shape in shapes(c):
        centre = 1 if "norm.weight" in name else 0
        values = [float32(centre + integers.unit() * spread(name)) for _ in range(math.prod(shape))]
        weights[name] = torch.tensor(values, dtype=torch.float64).reshape(shape).requires_grad_()
    return weights


def batch(c, integers, step):
    """Tokens, and targets of which each sequence has its own number of valid ones."""
    tokens, targets = [], []
    for s in range(len(c["valid"])):
        valid = c["valid"][(s + step) % len(c["valid"])]
        row = [integers.below(c["vocab"]) for _ in range(c["seq_len"] + 1)]
        # The ignored targets lie in front in odd sequences, behind in even ones.
        ahead = c["seq_len"] - valid if s % 2 else 0
        tokens.append(row[:-1])
        targets.append([y if ahead <= t < ahead + valid else IGNORED for t, y in enumerate(row[1:])])
    return torch.tensor(tokens), torch.tensor(targets)


def rms_norm(x, weight, eps):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def rotate(x, theta):
    """Rotary positions of x (batch, heads, time, dim)."""
    time, dim = x.shape[-2:]
    frequency = theta ** (-torch.arange(0, dim, 2, dtype=torch.float64) / dim)
    angle = torch.outer(torch.arange(time, dtype=torch.float64), frequency)
    angle = torch.cat([angle, angle], -1)
    half = torch.cat([-x[..., dim // 2:], x[..., :dim // 2]], -1)
    return x * angle.cos() + half * angle.sin()


def attention(c, w, layer, x):
    batches, time, _ = x.shape

    def project(name, heads):
        y = F.linear(x, w[layer + name + ".weight"], w.get(layer + name + ".bias"))
        return y.view(batches, time, heads, c["head_dim"]).transpose(1, 2)

    q = rotate(project("self_attn.q_proj", c["heads"]), c["rope_theta"])
    k = rotate(project("self_attn.k_proj", c["kv_heads"]), c["rope_theta"])
    v = project("self_attn.v_proj", c["kv_heads"])
    k, v = (t.repeat_interleave(c["heads"] // c["kv_heads"], 1) for t in (k, v))
    score = q @ k.transpose(-1, -2) / math.sqrt(c["head_dim"])
    future = torch.ones(time, time, dtype=torch.bool).triu(1)
    o = F.softmax(score.masked_fill(future, -math.inf), -1) @ v
    o = o.transpose(1, 2).reshape(batches, time, -1)
    return F.linear(o, w[layer + "self_attn.o_proj.weight"], w.get(layer + "self_attn.o_proj.bias"))


def mlp(w, layer, x):
    def linear(name, y):
        return F.linear(y, w[layer + name + ".weight"], w.get(layer + name + ".bias"))

    return linear("mlp.down_proj", F.silu(linear("mlp.gate_proj", x)) * linear("mlp.up_proj", x))


def loss_of(c, w, tokens, targets):
    """The mean loss of the valid targets."""
    x = F.embedding(tokens, w["model.embed_tokens.weight"])
    for n in range(c["layers"]):
        layer = f"model.layers.{n}."
        x = x + attention(c, w, layer, rms_norm(x, w[layer + "input_layernorm.weight"], c["norm_eps"]))
        x = x + mlp(w, layer, rms_norm(x, w[layer + "post_attention_layernorm.weight"], c["norm_eps"]))
    x = rms_norm(x, w["model.norm.weight"], c["norm_eps"])
    logits = F.linear(x, w["model.embed_tokens.weight" if c["tied"] else "lm_head.weight"])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)


def schedule(o):
    """Linear warm-up, then a cosine down to min_lr at the horizon, as a factor of lr."""

    def factor(t):
        if t < o["warmup"]:
            return (t + 1) / o["warmup"]
        low = o["min_lr"] / o["lr"]
        if t >= o["horizon"]:
            return low
        return low + (1 - low) * (1 + math.cos(math.pi * (t - o["warmup"]) / (o["horizon"] - o["warmup"]))) / 2

    return factor


def train(c, o, weights, batches):
    """Takes the steps; returns a record per step and the gradients of the first."""
    optimizer = torch.optim.AdamW(
        [dict(params=[p for p in weights.values() if p.dim() == 2], weight_decay=o["decay"]),
         dict(params=[p for p in weights.values() if p.dim() == 1], weight_decay=0.0)],
        lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"])
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, schedule(o))
    records, first = [], None
    for tokens, targets in batches:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(c, weights, tokens, targets)
        loss.backward()
        if first is None:
            first = {name: p.grad.clone() for name, p in weights.items()}
        norm = float(torch.nn.utils.clip_grad_norm_(weights.values(), o["clip"]))
        lr = scheduler.get_last_lr()[0]
        optimizer.step()
        scheduler.step()
        records.append(dict(valid=int((targets != IGNORED).sum()), loss=float(loss), norm=norm, lr=lr))
    clipped = [r["norm"] > o["clip"] for r in records]
    assert any(clipped) and not all(clipped), f"clipping must act on some steps: {[r['norm'] for r in records]}"
    return records, first


def hexadecimal(x):
    """The shortest hexadecimal form of a float32 value."""
    mantissa, exponent = x.hex().split("p")
    return mantissa.rstrip("0").rstrip(".") + "p" + exponent if "." in mantissa else x.hex()


def tensor_lines(kind, name, t, fmt):
    shape = "x".join(str(n) for n in t.shape)
    yield f"{kind} {name} {shape}"
    flat = t.detach().flatten().tolist()
    for i in range(0, len(flat), 8):
        yield "\t" + " ".join(fmt(v) for v in flat[i:i + 8])


def lines(c, o):
    integers = Integers(c["seed"])
    weights = initial(c, integers)
    batches = [batch(c, integers, step) for step in range(STEPS)]
    yield f"# lockstep reference numbers: {c['name']}"
    yield "# made by golden/reference/make_reference.py (make golden-reference); do not edit"
    yield f"# an independent Llama in PyTorch {torch.__version__}, float64, on the CPU"
    yield "# initial: float32 values, exact; gradient: of step 0, before clipping; final: weights after the last step"
    yield "config " + " ".join(f"{k}={format_value(v)}" for k, v in c.items() if k not in ("valid", "seed"))
    yield "optimizer " + " ".join(f"{k}={format_value(v)}" for k, v in o.items())
    for name, t in weights.items():
        yield from tensor_lines("initial", name, t, hexadecimal)
    for step, (tokens, targets) in enumerate(batches):
        for kind, rows in (("tokens", tokens), ("targets", targets)):
            for s, row in enumerate(rows.tolist()):
                yield f"{kind} {step} {s} " + " ".join(str(v) for v in row)
    records, gradient = train(c, o, weights, batches)
    for step, r in enumerate(records):
        yield f"step {step} " + " ".join(f"{k}={format_value(v)}" for k, v in r.items())
    for name, t in gradient.items():
        yield from tensor_lines("gradient", name, t, repr)
    for name, t in weights.items():
        yield from tensor_lines("final", name, t, repr)


def format_value(v):
    return str(v).lower() if isinstance(v, bool) else repr(v) if isinstance(v, float) else str(v)


def main():
    torch.set_num_threads(1)
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    for c in CONFIGS:
        path = out / (c["name"] + ".txt")
        path.write_text("\n".join(lines(c, OPTIMIZERS[c["name"]])) + "\n")
        print(path)


if __name__ == "__main__":
    main()
