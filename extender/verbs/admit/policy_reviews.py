"""Reviews of policy objects: invalid ones are refused with every error, and valid ones may draw warnings."""

from __future__ import annotations

from extender.model.policies import JsonObject
from extender.settings.limits import Limits
from extender.verbs.admit.policy_reader import NodeReader, PolicyReader
from extender.verbs.admit.policy_warnings import warnings_of
from extender.verbs.admit.reviews import Request, allowed, invalid
from extender.wire.policies.policies_v1 import read_policy
from extender.wire.policies.policy_validation import validate


def review_policy(request: Request, policies: PolicyReader, nodes: NodeReader | None, limits: Limits) -> JsonObject:
    """The answer to a policy that is created or updated.

    An update that leaves the spec as it was is not refused for it: the policy may have been stored under an older
    schema, and must lose its finalizers nevertheless.
    """
    if request.operation not in ("CREATE", "UPDATE") or request.subresource:
        return allowed(request.uid)
    kind = str(request.kind.get("kind"))
    errors = validate(request.obj, limits, kind=kind)
    if errors and request.operation == "UPDATE" and request.obj.get("spec") == request.old.get("spec"):
        errors, stored = [each for each in errors if not each.field.startswith("spec")], errors
        if not errors:
            return allowed(request.uid, warnings=[f"{each}; the policy is not in effect" for each in stored])
    if errors:
        return invalid(request, errors)
    version = f"{request.kind.get('group')}/{request.kind.get('version')}"
    policy = read_policy({**request.obj, "apiVersion": version}, limits, kind=kind)
    return allowed(request.uid, warnings=warnings_of(policy, request.obj.get("spec") or {}, policies, nodes))
