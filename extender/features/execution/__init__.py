"""Constraints that hold while pods run: `when: [Execution]` of a policy, and its field `execution`.

Kubernetes checks required affinity and spread when a pod is placed, and never again. A policy with this moment watches
them for the pods that it selects. `mode: Report` shows which constraints are broken. `mode: Evict` also moves pods: the
pod is evicted, and its controller creates a replacement, for which a node is found first. From the field to the move:

- `directive` has the values of the field `execution`, `schema` declares the field.
- `broken` finds out what is broken, by the counts that filter reads. An event does no work: rounds compare the versions
  of the counts that each watched signature reads.
- `moves` finds the best move of a pod in a trial on the live counts: filter passes the replacement, the measure of what
  is broken falls, and nothing that held breaks. `plan` lets moves follow one another on an index of its own.
- `answers` has moves as the API and the commands show them, `endpoint` answers `GET /v1/moves`, `cli` is the command
  `extender moves`.
- `mover` is the job of the leader: it claims the place of the replacement, evicts the pod, and follows the move to its end. The
  claim is a slot of `index/claims/reserved.py` under the key of the controller, and `rules/reserved_room.py` holds the
  replacement to it. `blocks` has a move under way, and why a controller gets none for a time. `stored` keeps places over a change of the
  leader. `settings` is the section, `building` builds the job.
- `report` is what doctor says of such policies.
"""
