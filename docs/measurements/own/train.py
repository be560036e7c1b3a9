"""A training script as people have them: it knows nothing of advisor and prints its steps."""

import torch

STEPS, BATCH, LENGTH, WIDTH, VOCABULARY = 1_000_000, 32, 256, 768, 16_384


def main() -> None:
    """Train a small causal transformer on random tokens."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(WIDTH, 12, 4 * WIDTH, batch_first=True, dropout=0.0)
    embed = torch.nn.Embedding(VOCABULARY, WIDTH).cuda()
    body = torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False).cuda()
    head = torch.nn.Linear(WIDTH, VOCABULARY).cuda()
    parts = torch.nn.ModuleList([embed, body, head])
    optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-4, fused=True)
    mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH, device="cuda")
    for step in range(1, STEPS + 1):
        tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            hidden = body(embed(tokens[:, :-1]), mask=mask, is_causal=True)
            loss = torch.nn.functional.cross_entropy(
                head(hidden).flatten(0, 1), tokens[:, 1:].flatten()
            )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
