"""One text over two processes: what they exchange does not grow with the text.

The processes may be on machines of their own: then start this file with `torchrun` there, as with any training.
"""

import os

import torch
import torch.distributed as dist
from torch.distributed.run import main as torchrun

LENGTHS = (10_000, 100_000, 1_000_000)
SIZES = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2}


def read() -> None:
    """Read texts of growing lengths together with the other process; the first one tells."""
    from fastformer import FastformerConfig, FastformerModel, sequence_parallel

    torch.set_num_threads(1)
    dist.init_process_group("gloo")  # "nccl" where every process has a GPU
    torch.manual_seed(0)  # the same weights, and here the same text, in both
    model = FastformerModel(FastformerConfig(vocab_size=10_000, **SIZES, position_embedding_type="none")).eval()
    for length in LENGTHS:
        text = torch.randint(3, 10_000, (1, length))
        mine = text.tensor_split([length // 3], dim=1)[dist.get_rank()]  # slices may be of any lengths
        with torch.inference_mode():
            with sequence_parallel() as exchange:
                shared = model(mine).pooler_output
            if dist.get_rank() == 0:
                apart = (shared - model(text).pooler_output).abs().max()
                sent = f"{exchange.bytes:,} bytes in {exchange.calls} exchanges"
                print(f"{length:>9,} tokens: {sent}; {apart:.0e} away from one process alone", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        read()
    else:
        torchrun(["--standalone", "--nproc-per-node", "2", __file__])
