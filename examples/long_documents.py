"""Time by length: Fastformer beside a Transformer of the same size, in seconds of one core."""

import time

import torch

from fastformer import FastformerConfig, FastformerModel

torch.set_num_threads(1)
torch.manual_seed(0)
LENGTHS = (512, 2_048, 8_192, 32_768, 131_072)
LONGEST = {"transformer": 8_192}  # beyond, it takes minutes


def seconds(mixer: str, length: int) -> float:
    """The time to turn one text into its vector."""
    config = FastformerConfig(vocab_size=10_000, mixer=mixer, hidden_size=128, position_embedding_type="none")
    model, text = FastformerModel(config).eval(), torch.randint(3, 10_000, (1, length))
    with torch.inference_mode():
        model(text[:, :64])  # the first call sets things up
        start = time.process_time()
        model(text)
    return time.process_time() - start


print(f"{'tokens':>8}{'fastformer':>16}{'per token':>12}{'transformer':>16}{'per token':>12}")
for length in LENGTHS:
    line = f"{length:>8,}"
    for mixer in ("fastformer", "transformer"):
        if length <= LONGEST.get(mixer, length):
            took = seconds(mixer, length)
            line += f"{1e3 * took:>13.0f} ms{1e6 * took / length:>9.1f} µs"
        else:
            line += f"{'–':>16}{'–':>12}"
    print(line)
print("\nThe time per token stays the same for Fastformer and grows with the length for a Transformer.")
