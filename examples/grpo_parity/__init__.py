"""A small GRPO or GSPO run on the CPU, three times: what the trainer takes for the rollout's log-probabilities differs.

    python -m examples.grpo_parity --out docs/grpo-parity.png
"""
