"""A run in words, for the tables of the judges."""


def play(run: object, steps: str) -> None:
    """Takes steps such as `place a b -> n1; wait 10`: methods of the run, for each name with what is right of the arrow."""
    for step in filter(None, steps.split("; ")):
        verb, _, words = step.partition(" ")
        names, _, arguments = words.partition(" -> ")
        for name in names.split():
            getattr(run, verb)(name, *arguments.split())
