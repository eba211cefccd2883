"""What reinforcement learning wants of the engine, beside the values that these flags give it."""

from __future__ import annotations

from collections.abc import Mapping

from engine_overlay import profile, verdict
from engine_overlay.doctor.child import Answers
from engine_overlay.doctor.finding import Finding

SUBJECT = "rl"

FLAGS = {
    "logprobs_mode": "--logprobs-mode processed_logprobs",
    "enable_prefix_caching": "--no-enable-prefix-caching",
    "async_scheduling": "--no-async-scheduling",
    "cascade_attention": "--disable-cascade-attn",
    "lm_head_dtype": """--hf-overrides '{"head_dtype": "float32"}'""",
}
"""The user's own flag for each value that the profile wants."""


def check(answers: Answers, verdicts: Mapping[str, verdict.Verdict], *, on: bool) -> list[Finding]:
    """Findings on each value; ``on`` says whether the profile is switched on, so that its patches have spoken."""
    values = (answers.get("config") or {}).get("values")
    if values is None:
        why = answers.errors.get("config") or answers.ended or "the engine was not asked"
        return [Finding(SUBJECT, "note", "the effective values could not be asked of the engine", why)]
    findings = []
    for name, value, why in profile.differences("rl", values, verdicts):
        what = f"{name} is {value}, training wants {profile.WISHES['rl'][name].value}"
        step = FLAGS[name]
        if not on:
            why, step = "the profile is off", f"export ENGINE_OVERLAY_PROFILE=rl (or {step})"
        elif why == "set by you or by the model's config":
            step = f"take the flag back, or give {step}"
        findings.append(Finding(SUBJECT, "problem", what, why, step))
    if not findings:
        findings.append(Finding(SUBJECT, "ok", f"as training wants them: {profile.spelled(values)}"))
    return findings
