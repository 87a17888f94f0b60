"""What is told at start-up: what was fused, what was not and why."""

from __future__ import annotations

from collections import Counter

from hfspeed.plan import Plan

MOST = 8
"""Lines of refusals told; the command line tells them all."""


def story(plan: Plan) -> list[str]:
    """A few lines about a plan, for the log."""
    classes = [f"{len(forward.paths)} x {forward.base}: {'; '.join(forward.notes)}" for forward in plan.forwards]
    lines = [f"hfspeed serves {plan.architecture}, {len(classes)} rewritten classes, {len(plan.proofs)} proofs"]
    lines += [f"  {told}" for told in classes]
    if start := plan.wrapper.first_position:
        lines.append(f"  positions begin at {start}, and padding in a prompt counts as any token does")
    refused = Counter(f"{refusal.wanted}: {refusal.found} ({refusal.reason})" for refusal in plan.refusals)
    lines += [f"  not done: {times} x {told}" for told, times in refused.most_common(MOST)]
    if len(refused) > MOST:
        lines.append(f"  not done: {len(refused) - MOST} more; `hfspeed plan` tells them all")
    return lines
